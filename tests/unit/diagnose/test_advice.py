"""Each piece of advice: evidence with it, and evidence without it (already in use, or no gain)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope.diagnose.advice.table import OURS, advise
from rankscope.diagnose.base.advice import in_words
from rankscope.diagnose.rules.table import open_case
from rankscope.diagnose.verdict import judge
from rankscope.records.changes import (
    BesideCalls,
    Chain,
    Changes,
    DoubledBatch,
    ExpertParallel,
    Gain,
    PlainAttention,
    SlowLink,
    SmallCalls,
    TensorParallel,
    UnalignedProduct,
    UnevenAttention,
)
from rankscope.records.evidence import Contention, Evidence, GroupDelay, RankCpu, SpareCpus
from rankscope.records.report import Action
from rankscope.records.rows import MemoryFrame, WorkGroup
from support.verdict_kinds import BUSY, FULL, H100, evidence, late

FUSED = {"element-wise, norms and losses": 21.0}
SLOW = {"host_ms": 40.0, "host_gain_ms": 40.0, "launches": 1600.0}
LONG = replace(H100, groups=[WorkGroup(name="matrix products", ms_per_step=80.0, kernels_per_step=99.0, peak_pct=75.0)])

ODD = UnalignedProduct(
    operator="aten::mm", sizes="[8192, 768] x [768, 50257]", pad={50257: 50304}, tflops=113.0, aligned_tflops=402.0,
    low_ms=6.0, high_ms=10.0,
)  # fmt: skip
PLAIN = PlainAttention(kernels=144.0, ms=31.0, fallback=False, low_ms=18.0, high_ms=30.0)
BESIDE = BesideCalls(ratio=1.31, error=0.08, operator="aten::mm", high_ms=4.0)
LINK = SlowLink(
    ranks=[0, 1], kind="all_reduce", link="NVLink 4", link_gb_s=450.0, best_gb_s=21.0, calls=30, low_ms=8.0, high_ms=9.0
)
SLOW_GROUP = GroupDelay(ranks=[0, 1], kinds=["all_reduce"], ratio=3.0, cost_ms=8.0, error_ms=1.0)
SMALL = SmallCalls(
    ranks=[0, 1, 2, 3], kind="all_reduce", calls=148.0, fixed_us=41.0, mean_us=44.0, megabytes=0.02, high_ms=6.0
)
TWICE = DoubledBatch(low_ms=4.0, high_ms=9.0, twice_ms=182.0)
TENSOR = TensorParallel(size=2, ranks=[0, 1], hosts=1, high_ms=12.0, halved_ms=11.0, others_ms=2.0)
EXPERTS = ExpertParallel(high_ms=20.0, others_ms=2.0, balanced_ms=9.0)
UNEVEN = UnevenAttention(group=[0, 1, 2, 3], late=[2, 3], longest_ms=21.0, mean_ms=12.0, low_ms=4.0, high_ms=8.0)
SLOW_PRODUCTS = replace(
    H100, groups=[WorkGroup(name="matrix products", ms_per_step=30.0, kernels_per_step=99.0, peak_pct=31.0)]
)


def codes(case: Evidence) -> list[str]:
    return [action.code for action in advise(open_case(case))]


def codes_and_gains(case: Evidence) -> dict[str, float | None]:
    return {action.code: action.saves_ms for action in advise(open_case(case))}


@pytest.mark.parametrize(
    ("code", "has", "has_not"),
    [
        ("mend_host_sync", {"suspects": [late(1, 30.0, "host_sync")]}, {}),
        ("compile", {"work_gains": FUSED}, {"work_gains": FUSED, "uses": ["compile"]}),
        ("compile", SLOW, {**SLOW, "device": False}),
        ("compile", SLOW, {**SLOW, "stacks": True}),
        ("cuda_graphs", {**SLOW, "uses": ["compile"]}, {**SLOW, "uses": ["compile", "cuda_graphs"]}),
        (
            "vectorise",
            {**SLOW, "often": "aten::add", "often_calls": 1500.0},
            {**SLOW, "often": "aten::add", "often_calls": 300.0},
        ),
        (
            "fused_optimizer",
            {"work_gains": {"optimizer": 7.0}, "uses": ["foreach_optimizer"]},
            {"work_gains": {"optimizer": 7.0}, "uses": ["foreach_optimizer", "fused_optimizer"]},
        ),
        ("larger_batch", {"work_gains": {"copies for sharding": 2.0}}, {"work_gains": {"copies for sharding": 0.9}}),
        ("pin_memory", {"pageable_ms": 9.0}, {"pageable_ms": 9.0, "suspects": [late(1, 30.0, "h2d_copy")]}),
        ("tensor_cores", {"efficiency": replace(H100, plain_ms=9.0)}, {"efficiency": H100}),
        ("near_the_peak", {"efficiency": LONG}, {"efficiency": H100}),
        ("reduce_once", {"repeats": 4, "repeat_ms": 9.0}, {"repeats": 4, "repeat_ms": 9.0, "overlap_gain_ms": 0.2}),
        (
            "hide_transfers",
            {"transfer_ms": 30.0, "network_gain_ms": 20.0},
            {"transfer_ms": 30.0, "network_gain_ms": 0.9},
        ),
        (
            "keep_gathered",
            {"regather_ms": 9.0, "regather_bytes": 1 << 30, "overlap_gain_ms": 20.0},
            {"regather_ms": 9.0, "regather_bytes": 1 << 30, "overlap_gain_ms": 0.5},
        ),
        ("checkpoint_less", {"again_ms": 9.0}, {"again_ms": 9.0, "memory": [FULL]}),
        ("make_room", {"memory": [replace(FULL, peak_allocated_bytes=77 << 30)]}, {"memory": [FULL]}),
        ("load_faster", {"input_ms": 30.0}, {"input_ms": 30.0, "suspects": [late(1, 30.0, "input_stall")]}),
        ("even_stages", {"pipeline": True, "compute_ms": {0: 8.0, 1: 11.0}}, {"compute_ms": {0: 8.0, 1: 11.0}}),
        ("pad_products", {"changes": Changes(product=ODD)}, {"changes": Changes(product=replace(ODD, high_ms=0.9))}),
        (
            "fuse_attention",
            {"changes": Changes(attention=PLAIN)},
            {"changes": Changes(attention=replace(PLAIN, high_ms=0.9))},
        ),
        ("fewer_ctas", {"changes": Changes(beside=BESIDE)}, {"changes": Changes(beside=replace(BESIDE, high_ms=0.9))}),
        ("test_link", {"changes": Changes(link=LINK)}, {"changes": Changes(link=LINK), "slow_groups": [SLOW_GROUP]}),
        (
            "merge_calls",
            {"changes": Changes(small_calls=[SMALL])},
            {"changes": Changes(small_calls=[SMALL]), "device": False, "hosts": 1},
        ),
        (
            "double_batch",
            {"changes": Changes(batch=TWICE), "transfer_ms": 10.0},
            {"changes": Changes(batch=TWICE), "transfer_ms": 9.0},
        ),
        (
            "overlap_tensor_parallel",
            {"changes": Changes(tensor=TENSOR), "transfer_ms": 30.0},
            {"changes": Changes(tensor=replace(TENSOR, hosts=2)), "transfer_ms": 30.0},
        ),
        (
            "tensor_parallel_in_host",
            {"changes": Changes(tensor=replace(TENSOR, hosts=2))},
            {"changes": Changes(tensor=TENSOR)},
        ),
        (
            "halve_tensor_parallel",
            {"changes": Changes(tensor=TENSOR), "efficiency": SLOW_PRODUCTS},
            {"changes": Changes(tensor=TENSOR), "efficiency": SLOW_PRODUCTS, "memory": [FULL]},
        ),
        (
            "overlap_experts",
            {"changes": Changes(experts=EXPERTS), "transfer_ms": 30.0},
            {"changes": Changes(experts=EXPERTS), "transfer_ms": 30.0, "device": False},
        ),
        (
            "balance_experts",
            {"changes": Changes(experts=EXPERTS), "transfer_ms": 30.0},
            {"changes": Changes(experts=replace(EXPERTS, balanced_ms=0.9))},
        ),
        ("even_context", {"changes": Changes(context=UNEVEN)}, {}),
        ("record_shapes", {"compute_pct": 95.0, "shapes": False}, {"compute_pct": 95.0, "shapes": True}),
        ("record_without_stacks", {**SLOW, "stacks": True}, SLOW),
    ],
)
def test_when_it_is_advised(code: str, has: dict, has_not: dict) -> None:
    assert code in codes(replace(evidence(), **has))
    assert code not in codes(replace(evidence(), **has_not))


@pytest.mark.parametrize(
    ("what", "bytes_", "said"),
    [
        ("optimizer states", 20 << 30, "Shard the states of the optimizer, 20.0 GiB at the peak"),
        ("logits and loss", 20 << 30, "logits and loss hold 20.0 GiB"),
        ("optimizer states", 2 << 30, "Checkpoint the activations"),  # of 77 GiB
        ("", 60 << 30, "Checkpoint the activations"),
    ],
)
def test_what_makes_room_depends_on_who_holds_most(what: str, bytes_: int, said: str) -> None:
    frame = MemoryFrame(frame="train.py:40 main", bytes=bytes_, count=9, what=what)
    row = replace(FULL, peak_allocated_bytes=77 << 30, top=[frame])
    (action,) = [a for a in advise(open_case(replace(evidence(), memory=[row]))) if a.code == "make_room"]
    assert said in action.text
    assert "77.0 GiB of 80.0 GiB of rank 3's memory" in action.text
    assert action.saves_ms is None


def test_one_reduction_a_step_saves_its_waits_and_the_work_of_ddp_too() -> None:
    """Three of four reductions: 15 ms of transfer, three quarters of 8 ms of waiting, and 10 ms of copies."""
    case = replace(evidence(), repeats=4, repeat_ms=15.0, waiting_ms=8.0, repeat_work_ms=10.0)
    (action,) = [a for a in advise(open_case(case)) if a.code == "reduce_once"]
    assert action.saves_ms == 31.0


def test_workers_can_take_over_no_more_than_idle_cpus() -> None:
    """Of steps of 100 ms 30 are spent in the loader. Of 4 CPUs half are idle: workers may take over all of it. Of 2
    CPUs a tenth is: 10 ms a step, so most of the 30 would remain. A fifth leaves 20 ms: the promise is limited."""
    case = replace(evidence(), input_ms=30.0, mean_step_ms=100.0)
    for idle, code, saves in ((0.5, "load_faster", 30.0), (0.1, "load_cheaper", 30.0), (0.2, "load_faster", 20.0)):
        spare = replace(case, spare_cpus=SpareCpus(host="node1", cpus=2.0, idle=idle))
        (action,) = [a for a in advise(open_case(spare)) if a.code.startswith("load_")]
        assert (action.code, action.saves_ms) == (code, pytest.approx(saves))
        assert ("90 % of the 2 CPUs that the job may use on node1 are busy" in action.text) == (idle == 0.1)


def test_a_loader_without_workers_is_named() -> None:
    """The name of the range that fetches a batch shows it; where some batches come from workers, all is as before."""
    for uses, said in (
        (["loads_in_training"], "makes its batches in the training process (num_workers=0)"),
        (["loads_in_training", "loads_in_workers"], "more num_workers"),
        ([], "more num_workers"),
    ):
        case = replace(evidence(), input_ms=30.0, uses=uses)
        (action,) = [a for a in advise(open_case(case)) if a.code == "load_faster"]
        assert said in action.text
        assert action.saves_ms == 30.0


def test_no_gain_is_more_than_the_unrecorded_step() -> None:
    """Recorded steps take 37 ms on average and are 18 ms longer than others, but those before took 14.5 ms: of 35 ms
    without work 22.5 are recording's, 12.5 remain."""
    slow = {"host_ms": 35.0, "host_gain_ms": 35.0, "most_host_ms": 35.0, "recording_ms": 18.0}
    case = replace(evidence(), **slow, step_ms=37.0, mean_step_ms=37.0, waiting_ms=0.0, input_ms=0.0)
    assert codes_and_gains(case)["compile"] == pytest.approx(17.0)
    case = replace(case, before_ms=14.5)
    assert codes_and_gains(case)["compile"] == pytest.approx(12.5)
    assert case.own_host_pct == pytest.approx(100 * 12.5 / 14.5)
    faster = replace(case, pageable_ms=20.0)
    assert codes_and_gains(faster)["pin_memory"] == pytest.approx(14.5)


def test_a_job_that_crowds_its_own_cpus_still_gets_advice() -> None:
    """Threads wait 30 of each 100 ms for a CPU; only the job runs there, or other processes do."""
    cpu = [RankCpu(rank=r, host="node1", held_ms=[30.0] * 4, cpu_ms=[60.0] * 4) for r in (0, 1)]
    own = Contention(ranks=cpu, gains_ms=[30.0] * 4, others_ms={"node1": 1.0}, cpus={"node1": 2.0})
    case = replace(evidence(), device=False, repeats=4, repeat_ms=40.0, contention=own)
    assert codes(case) == ["reduce_once"]
    decided = open_case(case)
    verdict = judge(decided, advise(decided))
    assert verdict.kind == "contended"
    assert "Reduce gradients once a step" in verdict.next[0]  # 40 ms are more than 30
    assert "Use no more threads than CPUs" in verdict.next[1]
    for others in ({"node1": 60.0}, {}):
        assert codes(replace(case, contention=replace(own, others_ms=others))) == []


@pytest.mark.parametrize(
    ("times", "micro_batches", "gains", "said"),
    [
        # One micro-batch passes all stages in turn, 8 + 12 ms: even stages gain nothing. Of 8, the second stage
        # decides: (8 + 12) / 8 + 7 / 8 * 12 = 13 ms are 7 less.
        ({0: 8.0, 1: 12.0}, 1, {"more_micro_batches": 7.0}, "8 instead of 1"),
        # Of 4, a step takes 5 + 9 = 14 ms. Even stages of 10: 5 + 7.5. 8 micro-batches: 13.
        ({0: 8.0, 1: 12.0}, 4, {"even_stages": 1.5, "more_micro_batches": 1.0}, "8 instead of 4"),
        # Enough already: with two stages on each rank 8 count as 16, (12 + 12) / 16 + 15 / 16 * 12 = 12.75 of 13.5
        ({0: 12.0, 1: 12.0}, 8, {}, ""),
        ({0: 40.0, 1: 40.0}, 8, {"more_micro_batches": 2.5}, "with two stages on each rank"),
        ({0: 8.0, 1: 12.0}, None, {"even_stages": None, "more_micro_batches": None}, "Use more micro-batches per step"),
    ],
)
def test_a_pipeline_s_schedule(
    times: dict[int, float], micro_batches: int | None, gains: dict[str, float | None], said: str
) -> None:
    case = replace(evidence(), pipeline=True, compute_ms=times, micro_batches=micro_batches)
    actions = {a.code: a for a in advise(open_case(case)) if a.code in ("even_stages", "more_micro_batches")}
    assert {code: a.saves_ms for code, a in actions.items()} == {k: pytest.approx(v) for k, v in gains.items()}
    assert said in getattr(actions.get("more_micro_batches"), "text", "")


def test_gathered_parameters_are_kept_where_they_fit() -> None:
    """Of 80 GiB 12 are free at the peak: 11 GiB fit, 13 do not."""
    row = replace(FULL, peak_allocated_bytes=68 << 30, peak_reserved_bytes=68 << 30)
    case = replace(evidence(), regather_ms=9.0, regather_bytes=11 << 30, overlap_gain_ms=8.0, memory=[row])
    (action,) = [a for a in advise(open_case(case)) if a.code == "keep_gathered"]
    assert action.saves_ms == 8.0
    assert "needs 11.0 GiB more on each device, of which 12.0 GiB are free at the peak." in action.text
    assert "keep_gathered" not in codes(replace(case, regather_bytes=13 << 30))


def test_a_model_that_is_sharded_as_one_group_is_to_be_sharded_by_blocks() -> None:
    case = replace(evidence(), uses=["fsdp2"], transfer_ms=30.0, network_gain_ms=20.0)
    (blocks,) = [
        a
        for a in advise(open_case(replace(case, modules={"all-gather of layers.3": 9.0})))
        if a.code == "hide_transfers"
    ]
    (whole,) = [
        a for a in advise(open_case(replace(case, modules={"all-gather of (root)": 9.0}))) if a.code == "hide_transfers"
    ]
    assert "set_modules_to_forward_prefetch" in blocks.text
    assert "not on the whole model only" in whole.text


def test_messages_between_stages_are_to_be_hidden() -> None:
    case = replace(evidence(), pipeline=True, transfer_ms=30.0, network_gain_ms=20.0)
    assert codes_and_gains(case)["hide_messages"] == 20.0
    assert "hide_messages" not in codes(replace(case, pipeline=False))


def test_stacks_give_the_optimizer_no_price_of_the_host() -> None:
    """Half of 80 kernels are the optimizer's, so of 40 ms idle for the host 20; with stacks its 2 ms on the device."""
    groups = [WorkGroup(name="optimizer", ms_per_step=2.0, kernels_per_step=40.0)]
    slow = {"host_ms": 40.0, "host_gain_ms": 40.0, "launches": 80.0, "work_gains": {"optimizer": 2.0}}
    case = replace(evidence(), **slow, uses=["foreach_optimizer"], efficiency=replace(H100, groups=groups))
    assert codes_and_gains(case)["fused_optimizer"] == pytest.approx(20.0)
    assert codes_and_gains(replace(case, stacks=True))["fused_optimizer"] == pytest.approx(2.0)


def test_transfers_of_one_host_s_processors_are_not_to_be_hidden() -> None:
    case = replace(evidence(), transfer_ms=30.0, network_gain_ms=20.0, device=False)
    assert "hide_transfers" in codes(replace(case, hosts=2))
    assert "hide_transfers" not in codes(replace(case, hosts=1))
    assert "hide_transfers" in codes(replace(case, hosts=1, device=True))


def test_what_slow_hosts_hide_while_recorded_is_worth_its_share_of_an_unrecorded_step() -> None:
    """Recorded steps of 100 ms, 40 of them by recording; of 50 ms idle for the host 10 remain of 60, 17 %.

    Kernels of 23.6 ms gain nothing by the replay of the recorded steps; 83 % of their time is 19.7.
    """
    case = replace(evidence(), efficiency=H100, recording_ms=40.0, host_ms=50.0, waiting_ms=0.0, input_ms=0.0)
    (action,) = [a for a in advise(open_case(case)) if a.code == "compile"]
    assert action.saves_ms == pytest.approx(23.6 * 50 / 60)
    assert "compile" not in codes(replace(case, recording_ms=0.0))


def test_the_optimizer_s_host_time_bounds_what_its_launches_cost() -> None:
    """48 of 480 launches are a tenth of the host's 30 ms; its step takes 8 ms of it, 6 of them unrecorded."""
    known = replace(H100, groups=[WorkGroup(name="optimizer", ms_per_step=1.0, kernels_per_step=48.0)])
    more = {"host_ms": 60.0, "host_gain_ms": 55.0, "recording_ms": 25.0, "launches": 480.0, "optimizer_ms": 8.0}
    case = replace(evidence(), efficiency=known, uses=["foreach_optimizer"], **more)
    (action,) = [a for a in advise(open_case(case)) if a.code == "fused_optimizer"]
    assert action.saves_ms == pytest.approx(6.0)


def test_bf16_is_worth_products_in_32_bits_and_half_of_what_other_kernels_move() -> None:
    """20 ms of products, by replay with attention 25, and half of 8 ms."""
    gains = {"products and attention in 32 bits": 25.0, "element-wise, norms and losses": 8.0}
    case = replace(evidence(), efficiency=replace(H100, plain_ms=20.0), work_gains=gains, uses=["compile"])
    (action,) = [a for a in advise(open_case(case)) if a.code == "tensor_cores"]
    assert (action.kind, action.saves_ms) == ("bound", 29.0)


@pytest.mark.parametrize(
    ("uses", "said", "never"),
    [
        (["ddp"], "bucket_cap_mb", "fully_shard"),
        (["fsdp2"], "set_modules_to_forward_prefetch", "bucket_cap_mb"),
        (["fsdp1"], "backward_prefetch", "bucket_cap_mb"),
        ([], "async_op=True", "bucket_cap_mb"),
    ],
)
def test_the_knobs_are_those_of_what_shards_the_model(uses: list[str], said: str, never: str) -> None:
    (action,) = advise(open_case(evidence(transfer_ms=30.0, network_gain_ms=20.0, uses=uses)))
    assert said in action.text
    assert never not in action.text


def test_late_ranks_come_first_and_the_rest_by_gain() -> None:
    case = evidence(late(1, 15.0, "host_sync"), work_gains={**FUSED, "copies for sharding": 3.0})
    assert codes(case) == ["mend_host_sync", "compile", "larger_batch"]


def test_on_a_busy_machine_nothing_is_advised_on_the_job() -> None:
    assert codes(evidence(contention=BUSY, work_gains=FUSED)) == []


def test_a_gain_in_words() -> None:
    action = Action(code="x", text="Do it.", ranks=[0], kind="replay", saves_ms=38.4, error_ms=3.7)
    assert in_words(action, 70.0) == "Do it. Saves 38 ± 4 ms a step (55 %)."
    assert in_words(replace(action, kind="bound", error_ms=None), 70.0) == "Do it. Saves at most 38 ms a step (55 %)."
    assert in_words(replace(action, saves_ms=None), 70.0) == "Do it."


def test_advice_that_fails_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> list[Action]:
        raise ValueError("no")

    failed: list[str] = []
    monkeypatch.setattr("rankscope.diagnose.advice.table.OURS", (replace(OURS[0], find=fail), *OURS[1:]))
    case = open_case(evidence(work_gains=FUSED))
    assert [a.code for a in advise(case, lambda code, error: failed.append(f"{code}: {error}"))] == ["compile"]
    assert failed == ["mend: no"]
    with pytest.raises(ValueError, match="no"):
        advise(case)


def test_a_gain_with_both_ends_is_a_range_and_never_more_than_a_step() -> None:
    """6 to 10 ms are 8 +- 2. Below 1 % of the step at the lower end it is at most 10. An unrecorded step of 8 ms leaves
    6 to 8."""
    (action,) = advise(open_case(evidence(changes=Changes(product=ODD))))
    assert in_words(action, 100.0).endswith("like ones at 402. Saves 8 ± 2 ms a step (8 %).")
    (action,) = advise(open_case(evidence(changes=Changes(product=replace(ODD, low_ms=0.5)))))
    assert in_words(action, 100.0).endswith("Saves at most 10 ms a step (10 %).")
    (action,) = advise(open_case(evidence(changes=Changes(product=ODD), recording_ms=92.0)))
    assert (action.saves_ms, action.error_ms) == (7.0, 1.0)


def test_the_costliest_chain_is_named() -> None:
    chain = Chain(operators=["aten::add", "aten::native_layer_norm"], count=12.0, ms=4.2)
    (action,) = advise(open_case(evidence(work_gains=FUSED, changes=Changes(chain=chain))))
    assert action.text.endswith("Costliest chain: add, native_layer_norm (12 a step, 4.2 ms).")
    (action,) = advise(open_case(evidence(work_gains=FUSED, changes=Changes(chain=replace(chain, ms=0.9)))))
    assert "chain" not in action.text


def test_buckets_are_not_to_be_smaller_and_larger() -> None:
    case = evidence(transfer_ms=30.0, network_gain_ms=20.0, uses=["ddp"], changes=Changes(small_calls=[SMALL]))
    hide, merge = advise(open_case(case))
    assert (hide.code, "smaller" in hide.text) == ("hide_transfers", False)
    assert (merge.code, "larger buckets" in merge.text) == ("merge_calls", True)


def test_a_rank_with_more_of_a_mask_is_not_told_to_change_its_device() -> None:
    """Ranks 2 and 3 are late by attention; rank 1, or waiting for input, is for another reason."""
    case = evidence(late(3, 20.0, "slow_compute"), changes=Changes(context=UNEVEN))
    assert codes(case) == ["mend_slow_compute"]
    verdict = judge(open_case(case), advise(open_case(case)))
    assert [line[:18] for line in verdict.next] == ["Shard the sequence"]
    for other in (late(1, 20.0, "slow_compute"), late(3, 20.0, "input_stall")):
        (action, *_) = advise(open_case(evidence(other, changes=Changes(context=UNEVEN))))
        assert "Shard" not in action.text


def test_calls_of_tensor_parallel_groups_are_not_advised_on_twice() -> None:
    """Of 30 ms of transfers other groups have 2."""
    case = evidence(transfer_ms=30.0, network_gain_ms=20.0, changes=Changes(tensor=TENSOR))
    assert codes_and_gains(case) == {"overlap_tensor_parallel": 12.0, "hide_transfers": 2.0}
    apart = replace(TENSOR, hosts=2, within=Gain(low_ms=5.0, high_ms=9.0))
    assert codes_and_gains(replace(case, changes=Changes(tensor=apart))) == {
        "tensor_parallel_in_host": 7.0,
        "hide_transfers": 2.0,
    }
