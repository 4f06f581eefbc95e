from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.matching.clocks import align
from rankscope.analysis.matching.collectives import match
from rankscope.analysis.pipeline import analyze
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.windows.analyse import analyse_window

WITHIN_NS = 20_000


@pytest.mark.data
@pytest.mark.parametrize(("offset", "ppm"), [(50_000_000, 100.0), (-50_000_000, -100.0)])
@pytest.mark.parametrize("name", ["ddp_dataloader_stall", "ddp_gpu_bound", "fsdp2_slow_gpu"])
def test_offset_and_drift_are_recovered_and_change_no_verdict(recorded, skew, name, offset, ppm) -> None:
    true, other = recorded(name), recorded(name)
    skew(other.traces[1], offset, ppm)
    before, after = analyse_window(true.traces), analyse_window(other.traces)
    calls = true.traces[1].collectives.event[before.matched.row[before.matched.of(1)]]
    expected = before.clocks.aligned(1, true.traces[1].events.start[calls]) + before.clocks.origin
    found = after.clocks.aligned(1, other.traces[1].events.start[calls]) + after.clocks.origin
    assert np.abs(found - expected).max() < WITHIN_NS
    one, two = analyze(true, hta=False).verdict, analyze(other, hta=False).verdict
    assert (one.kind, one.ranks, one.cause) == (two.kind, two.ranks, two.cause)
    if one.cost_ms_per_step is not None:
        assert two.cost_ms_per_step == pytest.approx(one.cost_ms_per_step, rel=0.01)


def test_ranks_that_never_meet_are_compared_through_those_they_share(make_trace, skew) -> None:
    """Pairs (0,1), (1,2), (2,3) only: the offset of 3 against 0 goes through 1 and 2."""
    traces = []
    for rank, pairs in enumerate([((0, 1),), ((0, 1), (1, 2)), ((1, 2), (2, 3)), ((2, 3),)]):
        rows = sorted((t + 1000 * (p[0] + 1), p) for t in range(0, 40_000, 4000) for p in pairs)
        trace = make_trace(rank, [("ncclDevKernel_AllReduce", t, 100) for t, _ in rows], ranks=(0, 1, 2, 3))
        groups = sorted(set(pairs))
        trace.groups = [type(trace.groups[0])(str(g), "", g) for g in groups]
        trace.collectives.group = np.array([groups.index(p) for _, p in rows], np.int32)
        traces.append(trace)
    for rank, offset in enumerate([0, 3_000_000, -7_000_000, 20_000_000]):
        skew(traces[rank], offset, 0.0)
    views = [make_view(t, t.rank) for t in traces]
    clocks = align(views, match(views))
    assert clocks.offset.tolist() == pytest.approx([0, -3e6, 7e6, -20e6], abs=2.0)
    assert clocks.connected.all()
    assert clocks.error_ns == pytest.approx(1000.0, abs=2.0)  # no ends agree better


def test_one_bad_end_does_not_move_the_clock(make_trace) -> None:
    times = list(range(1000, 30_000, 1000))
    one = make_trace(0, [("ncclDevKernel_AllReduce", t, 100) for t in times], ranks=(0, 1))
    two = make_trace(1, [("ncclDevKernel_AllReduce", t, 100) for t in times], ranks=(0, 1))
    longer = int(two.collectives.event[7])
    two.events.duration[longer] += 400_000
    views = [make_view(t, t.rank) for t in (one, two)]
    assert align(views, match(views)).offset.tolist() == [0.0, 0.0]


def test_nothing_to_align_by(make_trace) -> None:
    views = [make_view(make_trace(0, [("gemm", 100, 50)], ranks=(0, 1)), 0)]
    clocks = align(views, match(views))
    assert (clocks.method, clocks.error_ns) == ("none", None)
