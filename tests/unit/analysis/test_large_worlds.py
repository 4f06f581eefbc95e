"""512 ranks in TP x DP and TP x DP x PP meshes: lateness, skew, drift, lost ranks and cut windows are recovered."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.clocks.alignment import align
from rankscope.analysis.matching.collectives import match
from rankscope.analysis.rank.view import make_view

from .test_diagnosis import cut
from .test_worlds import cost_ms, report_of
from .worlds import MS, Fault, Item, Mesh, by_hand, pipeline, simulate

pytestmark = pytest.mark.data

NOISE = 0.02
LATE = 201
FLAT, DEEP = (Mesh(tp=8, dp=64), by_hand(2)), (Mesh(tp=4, dp=32, pp=4), pipeline(4, 2, tp=True))
STALL = [Fault(LATE, Item("fetch", host=3 * MS))]
PAUSE = [Fault(LATE, Item("pause", host=4 * MS), before=5)]
WITHIN_NS = 20_000

# A whole analysis of 512 ranks takes 2 s: the deeper mesh with everything that can go wrong is enough for every day.
meshes = pytest.mark.parametrize(
    "job", [pytest.param(FLAT, marks=pytest.mark.long), DEEP], ids=["tp8dp64", "tp4dp32pp4"]
)


def skewed(traces, skew) -> dict[int, tuple[int, float, int]]:
    """Another clock for every rank but the first: offset (ns), drift (ppm) and the time at which it was right."""
    rng = np.random.default_rng(1)
    given = {}
    for trace in traces[1:]:
        offset, ppm = int(rng.integers(-50 * MS, 50 * MS)), float(rng.uniform(-100, 100))
        given[trace.rank] = (offset, ppm, int(trace.events.start[0]))
        skew(trace, offset, ppm)
    return given


@pytest.mark.long
@pytest.mark.parametrize(
    ("job", "planted", "cause"),
    [(FLAT, PAUSE, "host_pause"), (DEEP, STALL, "input_stall")],
    ids=["pause-tp8dp64", "input-tp4dp32pp4"],
)
def test_the_late_rank_is_named(job, planted, cause, skew) -> None:
    mesh, program = job
    traces = simulate(program, mesh, noise=NOISE, faults=planted)
    skewed(traces, skew)
    found = report_of(traces)
    assert (found.verdict.ranks, found.verdict.cause) == ([LATE], cause)
    assert found.verdict.cost_ms_per_step == pytest.approx(cost_ms(program, mesh, planted, noise=NOISE), rel=0.15)


@pytest.mark.long
def test_no_rank_is_named_without_a_fault() -> None:
    mesh, program = DEEP
    found = report_of(simulate(program, mesh, noise=NOISE))
    assert found.verdict.ranks == []
    assert [f.kind for f in found.findings if len(f.ranks) == 1] == []


@meshes
def test_clocks_are_recovered_through_all_groups(job, skew) -> None:
    """A pipeline's stages share nothing but pairs: their ends tie the stages together."""
    mesh, program = job
    true = simulate(program, mesh, noise=NOISE, faults=STALL)
    starts = {t.rank: t.events.start.copy() for t in true}
    skewed(true, skew)
    views = [make_view(t, t.rank) for t in true]
    clocks = align(views, match(views))
    assert clocks.connected.all()
    axis = clocks.aligned(0, true[0].events.start) - starts[0]
    for column, trace in enumerate(true):
        error = clocks.aligned(column, trace.events.start) - starts[trace.rank] - axis[0]
        assert np.abs(error).max() < WITHIN_NS


@pytest.mark.long  # test_worlds.py has lost ranks and cut windows of 8 ranks
@meshes
def test_lost_ranks_and_cut_windows_change_no_verdict(job, skew) -> None:
    """Lost ones are far from the late one's TP group: its lateness can only be its own."""
    mesh, program = job
    traces = simulate(program, mesh, noise=NOISE, faults=STALL, steps=5)
    near = set(mesh.members(LATE, "tp"))
    lost, cut_ones = {3, 77, 300, 301, 511}, {20: (0.0, 0.75), 130: (0.3, 1.0), 400: (0.0, 0.75)}
    assert not near & (lost | set(cut_ones))
    for rank, part in cut_ones.items():
        cut(traces[rank], *part)
    kept = [t for t in traces if t.rank not in lost]
    skewed(kept, skew)
    found = report_of(kept)
    assert (found.verdict.ranks, found.verdict.cause) == ([LATE], "input_stall")
    assert {r.rank for r in found.ranks if r.status == "missing"} == lost


@meshes
def test_a_member_is_kept_for_each_call_of_a_rank_and_nothing_more(job) -> None:
    """What grows with calls times ranks would be 64 to 500 times as much."""
    mesh, program = job
    traces = simulate(program, mesh)
    matched = match([make_view(t, t.rank) for t in traces])
    calls = sum(len(t.collectives) for t in traces)
    assert len(matched.call) == len(matched.column) == len(matched.row) == matched.matched == calls
    sizes = {len(matched.channels[c].ranks) for c in matched.channel.tolist()}
    assert sizes == set(matched.size.tolist())
    assert len(matched) < calls / 2
