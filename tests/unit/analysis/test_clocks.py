from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.clocks.alignment import align
from rankscope.analysis.clocks.fit import Ends
from rankscope.analysis.matching.collectives import match
from rankscope.analysis.pipeline import analyze
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.windows.analyse import analyse_window

WITHIN_NS = 20_000


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "offset", "ppm"),
    [("ddp_dataloader_stall", 50_000_000, 100.0), ("fsdp2_slow_gpu", -50_000_000, -100.0)]
    + [
        pytest.param(*more, marks=pytest.mark.long)
        for more in [
            ("ddp_dataloader_stall", -50_000_000, -100.0),
            ("ddp_gpu_bound", 50_000_000, 100.0),
            ("ddp_gpu_bound", -50_000_000, -100.0),
            ("fsdp2_slow_gpu", 50_000_000, 100.0),
        ]
    ],
)
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


def test_a_drift_is_found_among_many_calls(make_trace, skew) -> None:
    """Of 400 calls in 4 s, 64 decide whether a drift is tried: 100 ppm are 400 us at the end of the window."""
    one, two = _pair(make_trace, range(10_000, 4_010_000, 10_000))
    skew(two, 0, 100.0)
    assert _aligned([one, two]).drift.tolist() == [0.0, pytest.approx(-1e-4, rel=0.01)]


def test_a_part_of_the_calls_stands_for_all_of_them() -> None:
    """Ranks 0 and 1 have six calls together, of which two are kept; 1 and 2 have one, with a residual of 4."""
    columns = np.array([[0, 1]] * 3 + [[1, 2]] + [[0, 1]] * 3)
    ends = Ends.joined(3, [columns], [np.arange(14.0).reshape(7, 2)])
    few = ends.thinned(2)
    assert few.tables[0].tolist() == [[0.0, 1.0], [8.0, 9.0], [6.0, 7.0]]
    assert few.columns[0].tolist() == [[0, 1], [0, 1], [1, 2]]
    assert few.mean(np.array([1.0, 1.0, 1.0, 1.0, 8.0, 8.0])) == pytest.approx((6 * 1 + 8) / 7)
    assert ends.mean(np.arange(14.0)) == 6.5


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


def _pair(make_trace, times, late=(), kind="allreduce", ranks=(0, 1)):
    """Calls at these times on each rank; ``late``: (rank, by us) that end later."""
    traces = []
    for rank in ranks:
        more = dict(late).get(rank, 0)
        trace = make_trace(rank, [("ncclDevKernel_AllReduce", t, 100 + more) for t in times], ranks=ranks)
        trace.collectives.kind = [kind] * len(times)
        traces.append(trace)
    return traces


def _aligned(traces, hosts=None):
    views = [make_view(t, t.rank) for t in traces]
    return align(views, match(views), hosts)


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_the_error_is_unknown_where_nothing_tests_the_fit(make_trace, skew, calls) -> None:
    """Of one call nothing is left over; of two, one end is: its scatter of 2 us bears an error of 6.5 times that."""
    traces = _pair(make_trace, [1000 * n for n in range(1, calls + 1)])
    skew(traces[1], 5_000_000, 0.0)
    if calls > 1:
        traces[1].events.duration[traces[1].collectives.event[-1]] += 4_000
    error = _aligned(traces).error_ns
    assert error is None if calls == 1 else error >= 4_000


def test_an_all_to_all_does_not_end_together(make_trace) -> None:
    """Rank 2 receives more and ends 90 us later; an all-reduce in the same window tells the clocks, which are equal."""
    times, ranks = [1000 * n for n in range(1, 13)], (0, 1, 2, 3)
    uneven = _pair(make_trace, times, late=[(2, 90)], kind="all_to_allv", ranks=ranks)
    assert _aligned(uneven).offset[2] == pytest.approx(-90_000)  # nothing else joins the ranks
    for trace in uneven:
        trace.collectives.kind = ["all_to_allv", "all_to_allv", "allreduce"] * 4
        for row in range(2, 12, 3):
            trace.events.duration[trace.collectives.event[row]] = 100_000
    assert _aligned(uneven).offset.tolist() == [0.0] * 4


def test_ranks_of_one_host_read_one_clock_whatever_messages_say(make_trace) -> None:
    """Only messages join the two, and the receiver's end 3 ms after the sender's: no reason to move a clock."""
    traces = _pair(make_trace, [10_000 * n for n in range(1, 9)], late=[(1, 3000)], kind="send")
    traces[1].collectives.kind = ["recv"] * 8
    for trace, peer in zip(traces, (1, 0), strict=True):
        trace.collectives.peer = np.full(8, peer, np.int32)
    assert _aligned(traces).offset[1] == pytest.approx(-3_000_000)
    for trace in traces:
        trace.meta.host = "node7"
    clocks = _aligned(traces)
    assert (clocks.method, clocks.offset.tolist(), clocks.connected.all()) == ("host_clock", [0.0, 0.0], True)


def test_ranks_that_share_no_call_are_joined_by_their_host(make_trace, skew) -> None:
    """Ranks 0 and 1 call together, of hosts a and b, and so do ranks 2 and 3, of hosts a and c; b is 3 ms ahead of a, c
    is 7 ms behind it. Nothing joins the pairs but that ranks 0 and 2 read one clock."""
    times, traces = [1000 * n for n in range(1, 21)], []
    for rank, (pair, host) in enumerate([((0, 1), "a"), ((0, 1), "b"), ((2, 3), "a"), ((2, 3), "c")]):
        trace = make_trace(rank, [("ncclDevKernel_AllReduce", t + 300 * pair[0], 100) for t in times], ranks=pair)
        trace.meta.host = host
        traces.append(trace)
    skew(traces[1], 3_000_000, 0.0)
    skew(traces[3], -7_000_000, 0.0)
    clocks = _aligned(traces)
    assert clocks.offset.tolist() == pytest.approx([0.0, -3e6, 0.0, 7e6], abs=2.0)
    assert clocks.connected.all()


def test_a_host_name_that_two_machines_bear_is_refuted(make_trace, skew) -> None:
    traces = _pair(make_trace, [10_000 * n for n in range(1, 9)], kind="all_to_all")
    skew(traces[1], 40_000_000, 0.0)
    for trace in traces:
        trace.meta.host = "localhost"
    assert _aligned(traces).offset[1] == pytest.approx(-40_000_000, abs=1000)


@pytest.mark.parametrize("ranks", [(0, 1), (0, 1, 2, 3)])
@pytest.mark.parametrize("size", [1_800_000, -600_000])
def test_a_clock_that_was_set_within_the_window(make_trace, ranks, size) -> None:
    """Steps of 3 ms, idle for 2 of them: the clock of rank 1 is set in the idle time after the sixth call."""
    traces = _pair(make_trace, [3000 * n + 200 for n in range(1, 13)], ranks=ranks)
    moved = traces[1].events.start > 6 * 3_000_000 + 1_000_000
    traces[1].events.start[moved] += size
    clocks = _aligned(traces)
    assert clocks.error_ns < 10_000
    jumps = {column: [round(j.size) for j in found] for column, found in clocks.steps.items()}
    assert jumps == ({1: [size]} if len(ranks) > 2 or size > 0 else {0: [-size]})
    first, last = (int(traces[1].events.start[traces[1].collectives.event[row]]) for row in (0, -1))
    apart = clocks.aligned(1, np.array([first, last])) - clocks.aligned(0, np.array([3_200_000, 36_200_000]))
    if len(ranks) > 2 or size > 0:
        assert np.abs(apart).max() < 1000


def test_a_correction_below_the_scatter_of_the_ends_is_none(make_trace) -> None:
    """Ends scatter by milliseconds, as those of ranks that share a device: the clocks stay as they were recorded."""
    rng = np.random.default_rng(0)
    traces = _pair(make_trace, [50_000 * n for n in range(1, 21)])
    for trace in traces:
        trace.events.duration[trace.collectives.event] += rng.integers(0, 6_000_000, 20)
    clocks = _aligned(traces)
    assert clocks.offset.tolist() == [0.0, 0.0]
    assert clocks.error_ns > 2_000_000
