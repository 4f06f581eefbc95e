"""Names of trace files as frameworks write them, and the ranks in them."""

from __future__ import annotations

import pytest

from rankscope.trace.files.naming import naming_schemes, parse_name, rank_of_name


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0/trace.json", 0),
        ("global_rank_7/trace.json.gz", 7),
        ("profile/rank-3/step_10/trace.json", 3),
        ("primus-megatron-exp[llama-8b-run1]-rank[2].1790000000000000002.pt.trace.json", 2),
        ("dp0_pp1_tp1_dcp0_ep3_rank3.1790000000.pt.trace.json", 3),
        ("iteration_20/rank12_trace.json", 12),
        ("rank0/rank1.json", 1),  # the file's own name before its folder's
        ("local_rank1.json", None),
        ("node1_local_rank0.trace.json", None),
        ("tp_rank_3.json", None),
        ("TP-1-DP-0.trace.json", None),
        ("profile_3.json", None),
        ("r3-2026-09-14.pt.trace.json", None),
        ("rank1_rank2.json", None),
        ("frankfurt_17.json", None),
        ("rank_0.json.gz", 0),
        ("rank_00012.trace.json.gz", 12),
        ("_hist1_rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("worker0_step_12.1694128201550.pt.trace.json", 0),
        ("trace_8_rank_1.json", 1),
        ("train-worker-3_77.1694128201550.pt.trace.json", None),  # a pod of Kubernetes, whose ranks it does not state
        ("train-worker-3/rank_9.json", 9),
        ("Rank3.json", 3),
        ("frank3.json", None),
        ("host-b_4242.1700000000000000003.pt.trace.json", None),
        ("rank0_rank1.json", None),
        ("standalone.json", None),
    ],
)
def test_the_word_for_a_rank(name: str, rank: int | None) -> None:
    assert rank_of_name(name) == rank


def decided(
    names: list[str],
    world: int | None = None,
    groups: list[set[int]] | None = None,
    windows: list[int] | None = None,
) -> tuple[list[int] | None, str]:
    schemes, doubt = naming_schemes(
        [parse_name(n) for n in names],
        windows or [0] * len(names),
        [world] * len(names),
        [frozenset(g) for g in groups] if groups else [frozenset()] * len(names),
    )
    return (schemes[0].ranks, schemes[0].how) if schemes else (None, doubt or "")


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["1790000000.44-TP-0-DP-0-DECODE.trace.json", "1790000000.44-TP-1-DP-0-DECODE.trace.json"], [0, 1]),
        (["TP-0-PP-0.json", "TP-1-PP-0.json", "TP-0-PP-1.json", "TP-1-PP-1.json"], [0, 1, 2, 3]),
        # tp varies fastest wherever it stands; ep counts the same ranks once more
        (["tp0_dp0_ep0.json", "tp0_dp1_ep2.json", "tp1_dp0_ep1.json", "tp1_dp1_ep3.json"], [0, 2, 1, 3]),
        (["pp_rank_0.json", "pp_rank_1.json"], [0, 1]),
        (["node0_gpu0.json", "node0_gpu1.json", "node1_gpu0.json", "node1_gpu1.json"], [0, 1, 2, 3]),
        (["node1_local_rank0.json", "node0_local_rank0.json"], [1, 0]),
        # torchelastic calls a node a group
        ([f"group_rank{g}_local_rank{n}.json" for g in (0, 1) for n in (0, 1)], [0, 1, 2, 3]),
        (["stage1.json", "stage0.json"], [1, 0]),
        (["node0/rank0.json", "node0/rank1.json", "node1/rank0.json", "node1/rank1.json"], [0, 1, 2, 3]),
        (["local_rank1.json", "local_rank0.json"], [1, 0]),
        (["profile_0.json", "profile_2.json", "profile_1.json"], [0, 2, 1]),
        (["fit-training_step_0.pt.trace.json", "fit-training_step_1.pt.trace.json"], [0, 1]),
        (["0/trace.json", "1/trace.json"], [0, 1]),
        # pods of a PyTorchJob; of other operators none is a master
        (["train-worker-1_88.17.pt.trace.json", "train-master-0_90.17.pt.trace.json"], [2, 0]),
        (["train-worker-1_88.17.pt.trace.json", "train-worker-0_90.17.pt.trace.json"], [1, 0]),
        (["trace_42_0.json", "trace_42_1.json"], [0, 1]),
        (["host_41377.0.json", "host_41233.1.json"], [0, 1]),  # the process id counts nothing
        (["r0-2026-09-14-08-30.pt.trace.json", "r1-2026-09-14-08-31.pt.trace.json"], [0, 1]),
    ],
)  # fmt: skip
def test_names_that_tell_ranks_together(names: list[str], ranks: list[int]) -> None:
    assert decided(names)[0] == ranks


@pytest.mark.parametrize(
    ("names", "world", "why"),
    [
        (["hosta_41377.json", "hosta_41233.json"], None, ""),
        (["run_1.json", "run_2.json"], None, ""),  # not from 0: what it counts is not known
        (["profile_0.json", "profile_2.json"], None, ""),
        (["trace_0_1.json", "trace_1_0.json"], None, "another order"),
        (["dp0_pp0.json", "dp0_pp1.json", "dp1_pp0.json", "dp1_pp1.json"], None, "not in which order"),
        (["tp0_dp0.json", "tp1_dp0.json", "tp0_dp1.json"], None, "leave gaps"),
        (["local_rank0.json", "local_rank1.json"], 8, "no rank of the job"),
        (["a-master-0_1.json", "a-worker-0_1.json", "a-worker-0_2.json"], None, "several ranks"),
        (["a-worker-1_1.json", "a-worker-2_1.json"], None, ""),  # from 1: one is missing, or the operator counts so
        # 3 of 8 ranks, of whichever replica
        (["tp0.json", "tp1.json", "tp2.json"], 8, "do not tell"),
        (["stage0_dp1.json", "stage1_dp1.json"], None, "a smaller dp are missing"),
        (["node1_local_rank0.json", "node1_local_rank1.json", "node2_local_rank0.json"], None, "node and a local"),
    ],
)
def test_names_that_decide_nothing(names: list[str], world: int | None, why: str) -> None:
    ranks, doubt = decided(names, world)
    assert ranks is None
    assert why in doubt


def test_process_groups_settle_the_order_of_a_mesh() -> None:
    names = ["dp0_pp0.json", "dp0_pp1.json", "dp1_pp0.json", "dp1_pp1.json"]
    # the replicas of a stage are neighbours: pipeline stages are the slowest, as Megatron has it
    assert decided(names, groups=[{0, 1}, {2, 3}, {0, 1}, {2, 3}])[0] == [0, 2, 1, 3]
    assert decided(names, groups=[{0, 2}, {1, 3}, {0, 2}, {1, 3}])[0] == [0, 1, 2, 3]


def test_the_size_of_the_job_completes_a_mesh_with_a_lost_file() -> None:
    names = ["tp0_dp0.json", "tp1_dp0.json", "tp1_dp1.json"]
    assert decided(names)[0] is None
    assert decided(names, world=4)[0] == [0, 1, 3]


def test_a_number_counts_within_its_window() -> None:
    names = ["profile_0_0.json", "profile_1_0.json", "profile_0_1.json", "profile_1_1.json"]
    assert decided(names, windows=[0, 0, 1, 1])[0] == [0, 1, 0, 1]
    assert decided(names, windows=[0, 1, 0, 1])[0] == [0, 0, 1, 1]
