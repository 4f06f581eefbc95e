"""Ranks that cost time over all their work, in jobs simulated with and without the fault (support.worlds)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.analysis.stragglers.cost import RankCost
from rankscope.analysis.stragglers.extra_syncs import Syncs, extra
from rankscope.analysis.stragglers.fuller_calls import power_of_volume
from rankscope.analysis.stragglers.kernel_pace import kernel_pace
from rankscope.analysis.stragglers.kernel_table import KernelTable
from rankscope.analysis.stragglers.kernel_work import overlap_loss
from rankscope.analysis.stragglers.measured import Measured, join
from rankscope.analysis.stragglers.model_error import mesh_of
from rankscope.analysis.stragglers.slow_devices import longer_by_kind
from rankscope.analysis.stragglers.statistics import (
    discoveries,
    mean_error,
    robust_scatter,
    smallest_visible,
)
from rankscope.records.report import ClusterReport, Verdict
from rankscope.trace.files.load import load_traces
from support.worlds.catalogue import Simulated, World, simulated
from support.worlds.engine import _Noise
from support.worlds.faults import Fault

pytestmark = pytest.mark.data


def told(world: World, folder: Path) -> tuple[ClusterReport, Simulated]:
    made = simulated(world)
    for rank, text in enumerate(made.texts):
        (folder / f"rank_{rank}.json").write_text(text)
    return analyze(load_traces([folder], workers=1, cache=False), hta=False), made


def report_of(world: World, folder: Path) -> tuple[ClusterReport, float]:
    """What is said of a world, and what its fault costs a step, ms."""
    report, made = told(world, folder)
    return report, made.cost_ms


def verdict_of(world: World, folder: Path) -> Verdict:
    """The verdict alone: to know the cost takes a second simulation."""
    return told(world, folder)[0].verdict


ONE = [
    World("a device 15 % slower, in many pieces", "fsdp", 4, Fault("slow_device", (2,), 1.15), seed=11),
    World("tensor parallel: it is late everywhere a little", "tp", 4, Fault("slow_device", (3,), 1.3), seed=11),
    World("of 16 ranks in two dimensions", "tpdp", 16, Fault("slow_device", (5,), 1.2), seed=11),
    World("a pipeline stage has no peer, its kernels have", "pp", 4, Fault("slow_device", (1,), 1.4), seed=11),
    World("from the middle of the window on", "ddp", 4, Fault("slow_device", (2,), 1.4, "late"), seed=11),
    World("the same, windows a step apart", "ddp", 3, Fault("slow_device", (1,), 1.4, "late"), seed=11, shifted=(2,)),
]


def some(worlds: list[World], *later: str) -> Any:
    """Parameters, of which those of these names are left to ``make test-long``."""
    marks = [[pytest.mark.long] * (world.name in later) for world in worlds]
    return pytest.mark.parametrize(
        "world", [pytest.param(w, marks=m, id=w.name) for w, m in zip(worlds, marks, strict=True)]
    )


@some(ONE, "of 16 ranks in two dimensions")  # SETS has groups of such a mesh, and the healthy jobs one of 8 ranks
def test_one_slow_device(world: World, tmp_path: Path) -> None:
    report, cost_ms = report_of(world, tmp_path)
    verdict = report.verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("straggler", list(world.due()), "slow_compute")
    assert verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.15)


SEVERAL = [
    World("two that hide each other", "ddp", 4, Fault("slow_device", (1, 3), 1.3), seed=11),
    World("two for whom the rest waits beside collectives", "fsdp", 6, Fault("slow_device", (2, 4), 1.12), seed=11),
    World("all of one host", "fsdp", 16, Fault("slow_device", tuple(range(8, 16)), 1.25), seed=11),
    World("each in its turn", "ddp", 4, Fault("slow_device", (0, 1, 2, 3), 1.4, "turns"), seed=11),
    World(
        "in turns, and kernels that run alone only then",
        "fsdp",
        4,
        Fault("slow_device", (0, 1, 2, 3), 1.4, "turns"),
        seed=1,
        shifted=(2,),
    ),
]


@some(SEVERAL, "all of one host")  # SETS has it, too
def test_several_slow_devices(world: World, tmp_path: Path) -> None:
    report, cost_ms = report_of(world, tmp_path)
    assert (report.verdict.kind, sorted(report.verdict.ranks)) == ("straggler", list(world.due()))
    assert report.verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.15)  # of all of them


def test_a_step_that_is_slow_everywhere_makes_no_rank_slower_than_the_others(tmp_path: Path) -> None:
    """GIVEN a step in which all kernels of all ranks take twice as long THEN nobody is named."""
    verdict = verdict_of(
        World("warm-up", "ddp", 4, Fault("slow_device", (0, 1, 2, 3), 2.0, "burst"), seed=11), tmp_path
    )
    assert verdict.kind != "straggler"


def test_longer_sequences_on_a_whole_replica_are_more_work_and_no_slow_device(tmp_path: Path) -> None:
    """GIVEN a tensor-parallel group whose kernels have larger grids THEN its ranks are named, for their work."""
    world = World("replica", "tpdp", 8, Fault("bigger", (4, 5, 6, 7), 1.3), seed=11)
    verdict = verdict_of(world, tmp_path)
    assert (verdict.kind, verdict.cause) == ("straggler", "uneven_work")
    assert set(verdict.ranks) <= set(world.due())


def test_a_window_that_begins_a_step_later_on_one_rank_hides_no_work(tmp_path: Path) -> None:
    """GIVEN a replica with more work, of which one rank recorded no first step THEN that step says nothing of work."""
    world = World("replica", "tpdp", 8, Fault("bigger", (4, 5, 6, 7), 1.3), seed=11, shifted=(4,))
    verdict = verdict_of(world, tmp_path)
    assert (verdict.kind, verdict.cause) == ("straggler", "uneven_work")
    assert set(verdict.ranks) <= set(world.due())


@pytest.mark.parametrize("shifted", [*(pytest.param(rank, marks=pytest.mark.long) for rank in (0, 3)), 1])
def test_what_was_launched_before_all_ranks_recorded_is_not_replayed(shifted: int, tmp_path: Path) -> None:
    """GIVEN windows a step apart WHEN a stage is slow THEN its cost is that of the steps in common: a rank that was not
    recorded yet neither holds the others nor counts a step's gain twice."""
    world = World("stages", "pp", 4, Fault("slow_device", (1,), 1.4), seed=11, shifted=(shifted,))
    report, cost_ms = report_of(world, tmp_path)
    assert (report.verdict.ranks, report.verdict.cause) == ([1], "slow_compute")
    assert report.verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.1)


def test_the_input_of_a_pipeline_stage_is_reported_without_a_peer(tmp_path: Path) -> None:
    world = World("stage", "pp", 4, Fault("input", (2,), 10.0), seed=11)
    report, cost_ms = report_of(world, tmp_path)
    assert (report.verdict.ranks, report.verdict.cause) == ([2], "input_stall")
    assert report.verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.15)


SYNCS = [
    World("its lead in gathering ahead is lost", "fsdp", 4, Fault("sync", (3,), 40.0), seed=11),
    World("between the calls of tensor parallel", "tp", 4, Fault("sync", (1,), 60.0), seed=11),
    World("of eight, in few segments", "ddp", 8, Fault("sync", (7,), 40.0), seed=11),
]


@some(SYNCS, "of eight, in few segments")
def test_who_waits_for_its_device_again_and_again(world: World, tmp_path: Path) -> None:
    """GIVEN a rank that synchronises many times a step, where all do once at its end, and for as long in all
    THEN it is named, and its cost is that of a host that can no longer run ahead."""
    report, cost_ms = report_of(world, tmp_path)
    verdict = report.verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("straggler", list(world.due()), "host_sync")
    assert verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.1)


@pytest.mark.parametrize(("kind", "size"), [("ddp", 4), pytest.param("ddp", 8, marks=pytest.mark.long), ("fsdp", 4)])
def test_peers_that_wait_beside_a_collective_need_less_time_than_they_take(
    kind: str, size: int, tmp_path: Path
) -> None:
    """GIVEN kernels slower beside communication, and peers that wait there for a slow device WHEN that is mended
    THEN the peers are quicker, too: without that the cost came out 8 to 10 % short."""
    world = World("waits", kind, size, Fault("slow_device", (1,), 1.4), seed=12)
    report, cost_ms = report_of(world, tmp_path)
    assert report.verdict.ranks == [1]
    assert report.verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.05)


def test_work_that_had_to_wait_for_another_stream_begins_at_once_when_it_need_not(tmp_path: Path) -> None:
    """GIVEN a ring in which attention is launched in time and waits for keys of a slow device WHEN that is mended
    THEN it begins a usual gap after the work before it. With the longest gap that a device is given, 12 us in each of
    24 turns, the cost came out 7 % short."""
    world = World("ring", "cp", 4, Fault("slow_device", (2,), 1.2), realistic=False)
    report, cost_ms = report_of(world, tmp_path)
    assert report.verdict.ranks == [2]
    assert report.verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.02)


def table_of(rank: list[int], pair: list[int], length: list[int], beside: list[float]) -> KernelTable:
    """Kernels of one kind in one step."""
    zeros = np.zeros(len(length), np.int64)
    return KernelTable(
        ranks=2, numbers=zeros[:1], rank=np.array(rank), step=zeros, kind=zeros, pair=np.array(pair),
        length=np.array(length), alone=np.array(beside) == 0, beside=np.array(beside), launched=zeros,
    )  # fmt: skip


def test_the_typical_kernel_of_a_step_by_hand() -> None:
    """GIVEN four kernels of 100 us on two ranks WHEN one of rank 1 takes five times as long THEN its mean is 28 % up (a
    pair says no more than three: log 3 / 4 = 0.27) and its median is 0; WHEN all take 130 us THEN both are log 1.3."""
    same, four = [100] * 4, list(range(4))
    for took, mean, middle in (([500, 100, 100, 100], np.log(3) / 4, 0.0), ([130] * 4, np.log(1.3), np.log(1.3))):
        pace = kernel_pace(table_of([0] * 4 + [1] * 4, four * 2, same + took, [0.0] * 8))
        assert pace is not None
        assert pace.log[1, 0] == pytest.approx(mean)
        typical = pace.typical(np.array([[False], [True]]))
        assert typical[1, 0] == pytest.approx(middle)
        assert np.isnan(typical[0, 0])


def test_a_rank_without_a_kernel_in_common_is_compared_with_its_other_steps() -> None:
    """GIVEN two ranks with kernels of other sizes, 100 and 200 us in four steps WHEN that of rank 1 takes 30 % more in
    the last THEN it is slow there by log 1.3, and a rank that always takes long is not to be seen."""
    step = np.array([0, 1, 2, 3] * 2)
    table = replace(
        table_of([0] * 4 + [1] * 4, [0] * 4 + [1] * 4, [100] * 4 + [200, 200, 200, 260], [0.0] * 8),
        numbers=np.arange(4), step=step,
    )  # fmt: skip
    pace = kernel_pace(table)
    assert pace is not None
    assert pace.lone.tolist() == [True, True]
    assert pace.log == pytest.approx(np.array([[0.0] * 4, [0.0, 0.0, 0.0, np.log(1.3)]]))


SHORT = (("micro", 4), ("work_us", 700.0))
STAGES = [
    World("its loader", "pp", 3, Fault("input", (0,), 20.0, "burst"), p2p_metadata=False, seed=11, sizes=SHORT),
    World("its device", "pp", 3, Fault("slow_device", (1,), 2.0, "burst"), seed=11,
          sizes=(*SHORT, ("own_shapes", True))),
]  # fmt: skip


@some(STAGES, "its device")
def test_a_stage_that_is_late_in_one_step_only(world: World, tmp_path: Path) -> None:
    """GIVEN a stage that has no peer (of one the messages do not name theirs, of one no kernel is like another's)
    THEN it is named for the step in which it is slow."""
    report, cost_ms = report_of(world, tmp_path)
    assert report.verdict.ranks == list(world.due())
    assert report.verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.1)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_kernel_that_takes_long_now_and_then_on_any_rank_makes_no_slow_device(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a healthy job in which one in a hundred operations takes two to five times as long THEN nobody is named."""
    usual = _Noise.of

    def heavy(self: _Noise, rank: int, step: int, key: int) -> float:
        chance = np.random.default_rng([seed, rank, step, key]).random()
        return usual(self, rank, step, key) * (2 + 300 * chance if chance < 0.01 else 1)

    monkeypatch.setattr(_Noise, "of", heavy)
    assert verdict_of(World("tails", "fsdp", 6, seed=seed), tmp_path).ranks == []


def test_slowdown_of_kernels_that_overlap_communication() -> None:
    """Alone 80 us, beside 100 us: a fifth of the pace is lost. 800 us, three quarters beside, become 941:
    800 / (1 - 0.75 / 5)."""

    def loss(*rows: list[int] | list[float], evenly: list[float] | None = None) -> float:
        table = table_of(*rows)  # type: ignore[arg-type]
        return overlap_loss(table, table.length.astype(float) if evenly is None else np.array(evenly))

    assert loss([0, 1], [0, 0], [80, 100], [0, 1]) == pytest.approx(0.2)
    assert loss([0, 1], [0, 0], [800, 941], [0, 0.75]) == pytest.approx(0.2, rel=0.03)
    assert loss([0, 1], [0, 0], [80, 100], [1, 1]) == 0.0
    # rank 0 is a slow device, on which 80 us take 96
    assert loss([0, 1], [0, 0], [96, 100], [0, 1], evenly=[80, 100]) == pytest.approx(0.2)
    # no kernel at the same place ran alone, but those of its kind did
    assert loss([0, 0], [0, 1], [80, 100], [0, 1]) == pytest.approx(0.2)
    # forward and backward under one name: how long those beside take alone is not known
    assert loss([0] * 4, [0, 1, 2, 3], [80, 160, 100, 200], [0, 0, 1, 1]) == 0.0


def test_a_device_that_is_slow_at_some_kernels_is_not_taken_to_be_slow_at_those_that_peers_never_run_alone() -> None:
    """GIVEN a rank 0 whose copies take 200 us, not 100, and two kinds that rank 1 runs beside a call only: 100 us on
    rank 0 and 125 on rank 1, 150 on rank 0 and 125 on rank 1. A kernel of 80 us takes 100 beside: a fifth is lost.
    THEN the one takes as long on both without the call (125 x 0.8 = 100), and the other half as long again.
    """
    copy, first, other, known = 0, 1, 2, 3
    kind = np.array([copy, first, other, known, known] * 2)
    table = replace(
        table_of([0] * 5 + [1] * 5, [0, 1, 2, 3, 4] * 2, [200, 100, 150, 80, 80, 100, 125, 125, 80, 100],
                 [0, 0, 0, 0, 0, 0, 1, 1, 0, 1]), kind=kind)  # fmt: skip
    pace = kernel_pace(table)
    assert pace is not None
    longer, lost = longer_by_kind(table, pace, np.log([[2.0], [1.0]]), [0])
    assert lost == pytest.approx(0.2)
    assert longer[0] == pytest.approx(np.log([2.0, 1.0, 1.5, 1.0]), abs=1e-9)


def test_of_each_kind_the_last_synchronisations_of_a_step_are_the_usual_ones() -> None:
    """Two others read the loss once a step; this rank does so three times, and empties a queue besides."""
    one, step = np.array([0]), np.array([4])
    others = [Syncs(one, one + 1, ["aten::item"], step)] * 2
    at = np.arange(4)
    own = Syncs(at, at + 1, ["aten::item", "cudaStreamSynchronize", "aten::item", "aten::item"], np.full(4, 4))
    assert extra(own, others).tolist() == [True, True, True, False]


HOT = [
    World("a hot expert of four", "ep", 4, Fault("hot_expert", (1,), 1.5), seed=11),
    World("and of eight, twice as many tokens", "ep", 8, Fault("hot_expert", (5,), 2.0), seed=11),
]


@some(HOT, "and of eight, twice as many tokens")
def test_a_hot_expert_costs_its_longer_all_to_all_too(world: World, tmp_path: Path) -> None:
    """GIVEN an expert to whom more tokens come, and calls that all members leave later for it
    THEN both are its cost, and how far calls grow with their volume, which one load does not tell, is in the error."""
    report, cost_ms = report_of(world, tmp_path)
    verdict = report.verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("straggler", list(world.due()), "uneven_work")
    assert verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.1)
    assert abs(verdict.cost_ms_per_step - cost_ms) < verdict.cost_error_ms


def test_how_far_calls_grow_with_their_volume_by_hand() -> None:
    """Twice as long for twice as much; half as much again (by a power of 0.585); all of one size tell nothing."""
    volume = np.array([1.0, 2.0, 4.0])
    assert power_of_volume(volume, 10 * volume) == pytest.approx((1.0, 0.0))
    assert power_of_volume(volume, np.array([4.0, 6.0, 9.0])) == pytest.approx((np.log2(1.5), 0.0))
    assert power_of_volume(volume, np.array([5.0, 5.0, 5.0])) == pytest.approx((0.0, 0.0))
    assert power_of_volume(np.array([1.0, 1.1, 1.2]), np.array([1.0, 3.0, 2.0])) == (0.5, 0.29)


@pytest.mark.parametrize(
    ("kind", "size", "seed", "mesh"),
    [
        ("ddp", 2, 21, "one group"),
        ("tpdp", 8, 21, "grid"),
        ("pp", 4, 21, "stages"),
        ("ppdp", 8, 21, "stages"),
        ("ep", 4, 21, "experts"),
        ("cp", 4, 21, "ring"),
    ]
    + [
        pytest.param(*more, marks=pytest.mark.long)
        for more in [
            ("fsdp", 16, 21, "one group"),
            ("ddp", 8, 22, "one group"),
            ("fsdp", 16, 22, "one group"),
            ("tp", 8, 22, "one group"),
            ("tpdp", 8, 22, "grid"),
            ("pp", 4, 22, "stages"),
            ("ppdp", 8, 22, "stages"),
            ("ep", 4, 22, "experts"),
        ]
    ],
)
def test_no_rank_is_named_in_a_healthy_job(
    kind: str, size: int, seed: int, mesh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the kind of mesh, of which the known error of the replay depends, is the right one."""
    kinds: list[str] = []

    def seen(*calls: Any, **more: Any) -> str:
        kinds.append(mesh_of(*calls, **more))
        return kinds[-1]

    monkeypatch.setattr("rankscope.analysis.windows.replay.mesh_of", seen)
    verdict = verdict_of(World("healthy", kind, size, seed=seed), tmp_path)
    assert verdict.ranks == []
    assert sum("slower than the others in all steps would have shown" in line for line in verdict.why) == 1
    assert kinds == [mesh]


SETS = [
    (World("host", "fsdp", 16, Fault("slow_device", tuple(range(8, 16)), 1.25), seed=11, per_host=8),
     "All 8 ranks of host host1 (8-15)"),
    (World("stage", "ppdp", 8, Fault("slow_device", (2, 3), 1.4), seed=11, per_host=8),
     "Both ranks at position 1 of mesh_pp (2, 3)"),
    (World("rail", "ddp", 8, Fault("slow_device", (1, 3, 5, 7), 1.3), seed=11, per_host=2),
     "All 4 ranks with local rank 1 (1, 3, 5, 7)"),
]  # fmt: skip


@pytest.mark.parametrize(("world", "words"), SETS, ids=lambda value: value.name if isinstance(value, World) else "")
def test_a_host_a_stage_and_a_rail_are_called_so(world: World, words: str, tmp_path: Path) -> None:
    report, cost_ms = report_of(world, tmp_path)
    assert report.verdict.sentence.startswith(words)
    assert report.verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.1)  # of all of them


def test_who_waits_for_a_late_rank_is_no_slow_device(tmp_path: Path) -> None:
    """GIVEN kernels that run slower beside communication, on the ranks that wait for rank 1's input
    THEN rank 1 is named alone, for its input."""
    world = World("waits", "fsdp", 4, Fault("input", (1,), 5.0), seed=13)
    verdict = verdict_of(world, tmp_path)
    assert (verdict.ranks, verdict.cause) == ([1], "input_stall")


def test_a_slow_link_of_one_group_is_distinguished_from_like_groups(tmp_path: Path) -> None:
    """GIVEN the data-parallel groups of four pipeline stages, and rank 5 behind a link that is twelve times slower
    THEN no rank is named, and its group is, with what that costs."""
    report, cost_ms = report_of(World("link", "ppdp", 16, Fault("link", (5,), 12.0, axis="dp"), seed=11), tmp_path)
    assert (report.verdict.kind, report.verdict.ranks) == ("comm_bound", [])
    assert "ranks 4-7 take" in report.verdict.sentence
    assert report.verdict.cost_ms_per_step == pytest.approx(cost_ms, rel=0.15)


def test_discoveries_by_hand() -> None:
    """Of p-values 0.001, 0.02, 0.03, 0.5 at a rate of 0.05 the limits are 0.0125, 0.025, 0.0375, 0.05: three fall."""
    assert discoveries(np.array([0.5, 0.001, 0.03, 0.02]), 0.05).tolist() == [False, True, True, True]
    assert not discoveries(np.array([np.nan, 0.9]), 0.05).any()


def test_a_mean_of_steps_is_less_sure_than_one_of_independent_numbers() -> None:
    """Four values of standard deviation 2: independent ones would give 1; three times the variance gives its root."""
    values = np.array([-2.0, 2.0, -2.0, 2.0]) * np.sqrt(3 / 4)
    assert mean_error(values) == pytest.approx(np.sqrt(3.0))
    assert mean_error(np.array([1.0])) == np.inf


def test_what_would_have_shown_by_hand() -> None:
    """GIVEN two ranks of five steps, of which the second scatters more (variance 2.5; its mean is sure to 1.2247)
    THEN that one decides: 1 % of false alarms over two ranks is t = 4.604 of 4 degrees, 19 of 20 is 2.132."""
    values = np.array([[1.0, 1.0, 1.0, 1.0, 1.1], [-2.0, -1.0, 0.0, 1.0, 2.0]])
    assert smallest_visible(values) == pytest.approx(np.sqrt(3 * 2.5 / 5) * (4.604 + 2.132), rel=1e-3)
    assert smallest_visible(np.array([[1.0, 2.0], [1.0, np.nan]])) == np.inf


def test_without_a_straggler_the_smallest_detectable_fault_is_named(tmp_path: Path) -> None:
    """GIVEN a healthy job WHEN a device is made slower by what is said to show (and that costs 3 % of the step or more)
    THEN it is named."""
    healthy = World("h", "ddp", 4, seed=1)
    (tmp_path / "healthy").mkdir()
    (line,) = [why for why in verdict_of(healthy, tmp_path / "healthy").why if "would have shown" in why]
    percent = float(line.split()[4])
    (tmp_path / "slow").mkdir()
    slow = replace(healthy, fault=Fault("slow_device", (1,), 1 + percent / 100))
    report, cost_ms = report_of(slow, tmp_path / "slow")
    assert cost_ms > 0.03 * report.verdict.step_ms
    assert (report.verdict.ranks, report.verdict.cause) == ([1], "slow_compute")


def test_scatter_does_not_see_a_few_that_stand_out() -> None:
    assert robust_scatter(np.array([-1.0, 0.0, 1.0, 0.0, 1.0, -1.0, 900.0, np.nan])) == pytest.approx(1.4826)


def test_on_hosts_alone_a_small_delay_is_measured_and_a_large_one_judged_by_its_segments() -> None:
    """Of steps of 100 ms: rank 0 costs 3 ms by its segments and 2.5 measured, rank 1 costs 6 and 5.5, rank 2 nothing
    by its segments and 2.5 measured."""
    segments = [RankCost(np.full(4, ms * 1e6), explained={"slow_compute": ms * 1e6}) for ms in (3.0, 6.0, 0.0)]
    for device, kept, errors in (
        (False, [2.5, 6.0, 2.5], [0.1, None, 0.1]),
        (True, [3.0, 6.0, 2.5], [0.12, 0.3 * 6.0 / 5.5, 0.1]),
    ):
        found = [replace(cost) for cost in segments]
        ranks = [
            Measured(column, np.full(4, ms * 1e6), error * 1e6, {"input_stall": 4 * ms * 1e6})
            for column, ms, error in ((0, 2.5, 0.1), (1, 5.5, 0.3), (2, 2.5, 0.1))
        ]
        join(found, ranks, 100e6, device=device)
        assert [cost.gains.mean() / 1e6 for cost in found] == kept
        for cost, error in zip(found, errors, strict=True):
            assert cost.error == (None if error is None else pytest.approx(error * 1e6))


def test_on_hosts_alone_what_is_in_all_segments_is_measured_over_the_whole_rank() -> None:
    """GIVEN 6 ms by its segments and 8 measured, for one cause, THEN 8: as much in each segment is taken there for a
    host that is slow at everything. For two causes it is judged by its segments."""
    for cause, kept in (("extra_compute", 8.0), ("input_stall", 6.0)):
        late = RankCost(np.full(4, 6e6), explained={"extra_compute": 24e6, "launch_bound": 1e6})
        join([late], [Measured(0, np.full(4, 8e6), 0.4e6, {cause: 32e6})], 100e6, device=False)
        assert late.gains.mean() / 1e6 == kept


def test_a_stage_without_a_device_that_waits_for_input() -> None:
    """Two gloo ranks, one stage each, four micro-batches; the loader of stage 1 takes 18 ms longer. It would wait for
    stage 0 during a part of that: 93 steps that were not recorded, three with the stall and three without in turns,
    differ by 10.0 ms, 95 % interval 7.5 to 12.8. Operators of less than 20 us are left out of these traces."""
    folder = Path(__file__).parents[2] / "data" / "planted" / "gloo_pp_input"
    verdict = analyze(load_traces([folder], cache=False), hta=False).verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("straggler", [1], "input_stall")
    assert verdict.cost_ms_per_step is not None
    assert 7.5 <= verdict.cost_ms_per_step <= 12.8
