"""Simulated jobs of 8 and 64 ranks (see ``worlds``): clocks, the right rank, its cost, and no other rank."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.records.report import ClusterReport
from rankscope.trace.files.load import LoadResult

from .test_diagnosis import cut
from .worlds import MS, US, Fault, Item, Mesh, by_hand, of_a_recorded_rank, pipeline, simulate

pytestmark = pytest.mark.data

NOISE = 0.02
SMALL = Mesh(tp=2, dp=4)
STALL = Item("fetch", host=3 * MS)
PAUSE = Item("pause", host=4 * MS)
EXTRA = Item("work", device=200 * US, name="another_gemm")


def report_of(traces) -> ClusterReport:
    report = analyze(LoadResult(traces=list(traces), sources=[]), hta=False)
    assert report.errors == []
    return report


def period_ms(traces) -> float:
    """From the end of the first step's last call to the last step's."""
    ends = []
    for step in range(len(traces[0].steps)):
        of_step = [t.events.end[t.collectives.event][t.events.step[t.collectives.event] == step].max() for t in traces]
        ends.append(max(of_step))
    return (ends[-1] - ends[0]) / (len(ends) - 1) / 1e6


def cost_ms(program, mesh, faults, **more) -> float:
    """What the faults really cost: the same job, simulated with and without them."""
    return period_ms(simulate(program, mesh, faults=faults, **more)) - period_ms(simulate(program, mesh, **more))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
@pytest.mark.parametrize("mesh", [SMALL, Mesh(tp=1, dp=8), Mesh(tp=8)], ids=["tp2dp4", "dp8", "tp8"])
def test_no_rank_is_named_in_a_healthy_job(mesh, seed) -> None:
    found = report_of(simulate(by_hand(), mesh, noise=NOISE, seed=seed))
    assert found.verdict.ranks == []
    assert found.collectives.matched_pct == 100


@pytest.mark.parametrize("rank", [0, 3, 6])
@pytest.mark.parametrize(
    ("faults", "cause"),
    [
        (lambda r: [Fault(r, STALL)], "input_stall"),
        (lambda r: [Fault(r, PAUSE, before=6)], "host_pause"),
        (lambda r: [Fault(r, EXTRA, before=6, times=10)], "extra_compute"),
    ],
    ids=["input", "pause", "extra"],
)
def test_the_late_rank_is_named_its_victims_are_not(faults, cause, rank) -> None:
    """Its TP peer waits for it, then is late itself at the calls of its own DP group."""
    program, planted = by_hand(), faults(rank)
    traces = simulate(program, SMALL, noise=NOISE, faults=planted)
    found = report_of(traces).verdict
    assert (found.ranks, found.cause) == ([rank], cause)
    truth = cost_ms(program, SMALL, planted, noise=NOISE)
    assert found.cost_ms_per_step == pytest.approx(truth, rel=0.15)
    waits = analyse_window(traces).waits
    victim = rank ^ 1
    assert np.isin(victim, waits.last)  # it was the last somewhere: raw arrivals would blame it


@pytest.mark.parametrize("lost", [0, 5, 7])
def test_a_lost_rank_changes_no_verdict(lost) -> None:
    traces = simulate(by_hand(), SMALL, noise=NOISE, faults=[Fault(3, STALL)])
    found = report_of(t for t in traces if t.rank != lost)
    assert found.verdict.ranks == [3]
    assert [r.rank for r in found.ranks if r.status == "missing"] == [lost]


def unsettled(found: ClusterReport, late: int, lost: int) -> list[str]:
    """Kinds of the findings on the late rank of a verdict that abstains, and says who is late and what would tell."""
    assert (found.verdict.kind, found.verdict.ranks, found.verdict.confidence) == ("insufficient_data", [], "low")
    assert found.verdict.sentence.startswith(f"Rank {late} is late")
    assert any(f"There is no trace of rank {lost}, in group tp [2, 3]" in line for line in found.verdict.why)
    assert found.verdict.next[0].startswith(f"Record rank {lost} too")
    told = [f for f in found.findings if f.ranks == [late]]
    assert all(f.cost_ms_per_step is None and found.verdict.why == f.evidence for f in told)
    return [f.kind for f in told]


@pytest.mark.parametrize("planted", [[3], [2, 3]], ids=["it waited", "it was as late"])
def test_a_lost_rank_that_waited_for_the_late_one_might_be_late_itself(planted) -> None:
    """The traces that are left are the same, whether rank 2 waits in its TP group or has a stall of its own."""
    traces = simulate(by_hand(), SMALL, noise=NOISE, faults=[Fault(r, STALL) for r in planted])
    assert unsettled(report_of(t for t in traces if t.rank != 2), late=3, lost=2) == ["input_stall"]


def test_if_the_late_rank_is_missing_no_other_rank_is_named() -> None:
    traces = simulate(by_hand(), SMALL, noise=NOISE, faults=[Fault(3, STALL)])
    assert unsettled(report_of(t for t in traces if t.rank != 3), late=2, lost=3) == ["unexplained"]


def test_a_lost_rank_of_a_calm_job_holds_no_verdict_up() -> None:
    traces = simulate(by_hand(), SMALL, noise=NOISE)
    assert report_of(t for t in traces if t.rank != 2).verdict.kind == "balanced"


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.8), (0.3, 1.0)])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_a_window_cut_on_one_rank_changes_no_verdict(rank, low, high) -> None:
    traces = simulate(by_hand(), SMALL, noise=NOISE, faults=[Fault(3, STALL)], steps=5)
    cut(traces[rank], low, high)
    assert report_of(traces).verdict.ranks == [3]


@pytest.mark.parametrize("faults", [[], [Fault(5, STALL)]], ids=["healthy", "stalled"])
def test_clocks_of_a_mesh_are_recovered(skew, faults) -> None:
    """Offsets up to 50 ms and drifts up to 100 ppm on each rank; groups of 2 and 4 ranks, none holds all."""
    traces = simulate(by_hand(), SMALL, noise=NOISE, faults=faults)
    other = simulate(by_hand(), SMALL, noise=NOISE, faults=faults)
    rng = np.random.default_rng(1)
    for trace in other[1:]:
        skew(trace, int(rng.integers(-50, 50)) * MS, float(rng.uniform(-100, 100)))
    result = analyse_window(other)
    assert result.clocks.connected.all()
    for column, (true, moved) in enumerate(zip(traces, other, strict=True)):
        found = result.clocks.aligned(column, moved.events.start) + result.clocks.origin
        assert np.abs(found - true.events.start).max() < 20 * US
    assert report_of(other).verdict.ranks == [f.rank for f in faults]


def test_two_faults_at_one_place_hide_each_other_and_are_both_named() -> None:
    """Mending one alone gains little: each is told with what it costs once the other is mended."""
    program, both = by_hand(), [Fault(5, STALL), Fault(0, Item("pause", host=2500 * US))]
    found = report_of(simulate(program, SMALL, noise=NOISE, faults=both))
    assert found.verdict.ranks == [5, 0]
    costs = {f.ranks[0]: f.cost_ms_per_step for f in found.findings if f.kind in {"input_stall", "host_pause"}}
    for fault in both:
        truth = cost_ms(program, SMALL, [fault], noise=NOISE)
        assert costs[fault.rank] == pytest.approx(truth, rel=0.15)
    assert any("with rank 0 fixed too" in line for line in found.verdict.why)


def test_two_faults_at_two_places_are_both_named() -> None:
    program, both = by_hand(), [Fault(6, EXTRA, before=2, times=12), Fault(1, EXTRA, before=14, times=8)]
    found = report_of(simulate(program, SMALL, noise=NOISE, faults=both)).verdict
    assert found.ranks == [6, 1]


@pytest.mark.parametrize("mesh", [Mesh(pp=4, dp=2), Mesh(pp=2, dp=2, tp=2)], ids=["pp4dp2", "pp2dp2tp2"])
def test_pipeline_waits_name_no_rank(mesh) -> None:
    found = report_of(simulate(pipeline(mesh.pp), mesh, noise=NOISE))
    assert found.verdict.ranks == []
    assert any(f.kind == "pipeline_wait" for f in found.findings)


def test_a_heavier_stage_is_not_a_late_rank() -> None:
    """Stages are not each other's peers: the second has three times the work of the third."""
    program = [
        Item("work", i.host, 3 * i.device, stage=1) if i.stage == 1 and i.what == "work" else i for i in pipeline(4)
    ]
    assert report_of(simulate(program, Mesh(pp=4, dp=2), noise=NOISE)).verdict.ranks == []


def test_a_late_replica_of_a_stage_is_named() -> None:
    traces = simulate(pipeline(4), Mesh(pp=4, dp=2), noise=NOISE, faults=[Fault(3, STALL)])
    assert report_of(traces).verdict.ranks == [3]  # stage 1, replica 1


@pytest.mark.data
@pytest.mark.parametrize("name", ["ddp_healthy", "ddp_gpu_bound", "fsdp2_gpu_bound"])
@pytest.mark.parametrize("rank", [None, 4])
def test_a_recorded_rank_eight_times(recorded, name, rank) -> None:
    program = of_a_recorded_rank(recorded(name).traces, axes=("tp", "dp"))
    planted = [] if rank is None else [Fault(rank, Item("pause", host=60 * MS), before=9)]
    traces = simulate(program, SMALL, noise=NOISE, faults=planted, steps=3)
    found = report_of(traces).verdict
    assert found.ranks == ([] if rank is None else [rank])
    if rank is not None:
        assert found.cost_ms_per_step == pytest.approx(cost_ms(program, SMALL, planted, noise=NOISE, steps=3), rel=0.15)


@pytest.mark.data
def test_sixty_four_ranks_and_one_late(recorded, skew) -> None:
    program = of_a_recorded_rank(recorded("ddp_healthy").traces, axes=("tp", "dp"), parts=1)
    traces = simulate(program, Mesh(tp=4, dp=16), noise=NOISE, faults=[Fault(37, Item("fetch", host=60 * MS))], steps=3)
    for trace in traces[1::3]:
        skew(trace, 20 * MS, 30.0)
    found = report_of(traces)
    assert (found.verdict.ranks, found.verdict.cause) == ([37], "input_stall")
    assert found.verdict.cost_ms_per_step == pytest.approx(60, rel=0.15)
