"""Sends and receives issued as one call: rings, batched pipelines, lost records. Times are calculated by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from rankscope.analysis.clocks.alignment import Clocks, align
from rankscope.analysis.clocks.waits import Waits, measure_waits
from rankscope.analysis.matching.collectives import Matched, match
from rankscope.analysis.matching.rings import pipeline_channels
from rankscope.analysis.rank.view import make_view
from rankscope.analysis.replay.builder import Builder
from rankscope.analysis.replay.collective_nodes import CallNodes
from rankscope.trace.columns import Piece, RankTrace

TRANSFER, PERIOD = 50, 1000
Call = tuple[int, int, tuple[Piece, ...]]
"""Begin and end, us, and the messages."""


def kind(pieces: Sequence[Piece]) -> str:
    ways = {piece.sends for piece in pieces}
    return "sendrecv" if len(ways) == 2 else "send" if True in ways else "recv"


def trace_of(make_trace, rank: int, calls: Sequence[Call], size: int, steps=((0, 1_000_000),)) -> RankTrace:
    rows = [("ncclDevKernel_SendRecv", begin, end - begin) for begin, end, _ in calls]
    trace = make_trace(rank, rows, ranks=tuple(range(size)), steps=steps)
    trace.collectives.kind = [kind(pieces) for _, _, pieces in calls]
    trace.collectives.pieces = [pieces for _, _, pieces in calls]
    return trace


def around(rank: int, size: int) -> tuple[Piece, Piece]:
    """To the next of a ring, from the one before."""
    return Piece(True, (rank + 1) % size, 8), Piece(False, (rank - 1) % size, 8)


def ring(arrivals: np.ndarray) -> list[list[Call]]:
    """By rank: a kernel ends a transfer after itself and both neighbours arrived. ``arrivals``: turns x ranks, us."""
    size = arrivals.shape[1]
    end = np.maximum(np.maximum(np.roll(arrivals, 1, 1), np.roll(arrivals, -1, 1)), arrivals) + TRANSFER
    return [
        [(int(b), int(e), around(r, size)) for b, e in zip(arrivals[:, r], end[:, r], strict=True)] for r in range(size)
    ]


def turns(size: int, count: int = 12) -> np.ndarray:
    """Rank 2 is late by 100 us in every turn, rank 0 by 30."""
    late = np.array([30, 0, 100, 0, 0, 0, 0, 0])[:size]
    return 100 + PERIOD * np.arange(count)[:, None] + late


def of_ring(make_trace, calls: list[list[Call]], **more) -> list:
    return [make_view(trace_of(make_trace, r, own, len(calls), **more), r) for r, own in enumerate(calls)]


def measured(views) -> tuple[Matched, Clocks, Waits]:
    matched = match(views)
    clocks = align(views, matched)
    return matched, clocks, measure_waits(views, matched, clocks)


def test_round_a_ring_each_waits_for_its_neighbours(make_trace) -> None:
    matched, _, waits = measured(of_ring(make_trace, ring(turns(5))))
    assert (matched.total, matched.matched, matched.unmatched) == (60, 60, {})
    assert matched.size.tolist() == [5] * 12
    assert matched.kind == ["sendrecv"] * 12
    assert [c.ranks for c in matched.channels] == [(0, 1, 2, 3, 4)]
    # late by 30, 0, 100, 0, 0: 1 and 3 wait for 2, and 4 for 0; nobody waits for all
    assert waits.wait.reshape(12, 5).tolist() == [[0, 100_000, 0, 100_000, 30_000]] * 12
    assert (waits.transfer == TRANSFER * 1000).all()


def test_the_replay_contains_the_peers_that_a_member_waits_for(make_trace) -> None:
    matched, _, waits = measured(of_ring(make_trace, ring(turns(5, 1))))
    builder = Builder()
    calls = CallNodes(builder, matched, waits)
    graph = builder.finish(calls.end)
    assert graph.replay().tolist() == graph.recorded.tolist()

    def arrivals(node: int) -> list[int]:
        """Of all that a node waits for, directly or by others."""
        sources = graph.source[graph.first[node] : graph.first[node + 1]].tolist()
        return [n for source in sources for n in arrivals(source)] if sources else [node]

    awaited = [sorted(graph.recorded[arrivals(end)].tolist()) for end in graph.ends.tolist()]
    late = 1000 * turns(5, 1)[0]
    assert awaited == [sorted(late[[rank - 1, rank, (rank + 1) % 5]].tolist()) for rank in range(5)]


@pytest.mark.parametrize(("size", "method"), [(3, "collective_ends"), (4, "none")])
def test_ends_tell_the_clocks_where_all_exchange_with_all(make_trace, size, method) -> None:
    matched, clocks, _ = measured(of_ring(make_trace, ring(turns(size))))
    assert matched.matched == matched.total == 12 * size
    assert clocks.method == method
    assert clocks.offset.tolist() == [0.0] * size


def test_a_lost_record_costs_its_own_call(make_trace) -> None:
    calls = ring(turns(5))
    del calls[3][6]
    matched, _, waits = measured(of_ring(make_trace, calls))
    assert (matched.total, matched.matched, matched.lost) == (59, 59, [0, 0, 0, 1, 0])
    assert sorted(matched.size.tolist()) == [4] + [5] * 11
    assert len(matched.channels) == 1  # its neighbours name it
    lost = int(np.argmin(matched.size))
    # 2 and 4 no longer know when 3 arrived; 1 still waits for 2
    members = np.arange(matched.first[lost], matched.first[lost + 1])
    assert waits.wait[members].tolist() == [0, 100_000, 0, 30_000]


def test_windows_one_step_apart(make_trace) -> None:
    """The same step numbers, of different steps: one clock tells."""
    size, calls = 4, ring(turns(4, 24))
    steps = [(n * 4 * PERIOD, 4 * PERIOD) for n in range(6)]
    views = []
    for rank, own in enumerate(calls):
        first = 4 if rank == 1 else 0
        trace = trace_of(make_trace, rank, own[first:], size, steps=steps[1:] if rank == 1 else steps)
        views.append(make_view(trace, rank))
    matched, _, waits = measured(views)
    assert matched.matched == matched.total == 24 * 4 - 4
    begun = [waits.arrival[a:b] for a, b in pairwise(matched.first.tolist())]
    assert max(float(np.ptp(b)) for b in begun) == 100_000


def test_one_by_one_on_one_side_and_as_one_on_the_other(make_trace) -> None:
    """What rank 0 issues as one rank 1 issues one by one: a kernel belongs to one call, the other stays alone."""
    both = (Piece(True, 1, 8), Piece(False, 1, 8))
    one = [(100 + n * PERIOD, 200 + n * PERIOD, both) for n in range(8)]
    other = [
        (begin + shift, begin + shift + 40, (piece,))
        for begin, _, _ in one
        for shift, piece in ((0, Piece(False, 0, 8)), (60, Piece(True, 0, 8)))
    ]
    traces = [trace_of(make_trace, 0, one, 3), trace_of(make_trace, 1, other, 3)]
    for trace, peer in zip(traces, (1, 0), strict=True):
        trace.collectives.peer[:] = peer
    matched, _, _ = measured([make_view(t, r) for r, t in enumerate(traces)])
    assert matched.size.tolist() == [2] * 8
    assert (matched.matched, matched.total, sum(matched.unmatched.values())) == (16, 24, 8)


@pytest.mark.parametrize("size", [2, 4])
def test_a_ring_is_no_pipeline(make_trace, size) -> None:
    views = of_ring(make_trace, ring(turns(size)))
    assert pipeline_channels(views, match(views)).tolist() == [False]


def test_stages_that_send_on_while_they_receive_are_a_pipeline(make_trace) -> None:
    """Each tick every stage receives the next batch and sends the last one: the first only sends, the last receives."""

    def pieces(rank: int) -> tuple[Piece, ...]:
        return tuple(p for p in (Piece(True, rank + 1, 8), Piece(False, rank - 1, 8)) if 0 <= p.peer < 4)

    views = []
    for rank in range(4):
        own = [(100 + n * PERIOD, 150 + n * PERIOD, pieces(rank)) for n in range(10)]
        trace = trace_of(make_trace, rank, own, 4)
        trace.collectives.peer[:] = {0: 1, 3: 2}.get(rank, -1)
        views.append(make_view(trace, rank))
    matched = match(views)
    assert matched.matched == matched.total == 40
    assert pipeline_channels(views, matched).all()


def test_two_neighbours_that_lost_different_calls_of_one_step(make_trace) -> None:
    """They recorded as many: the times tell that order is wrong between the two."""
    calls = ring(turns(5, 24))
    del calls[1][3], calls[2][8]
    steps = [(0, 12 * PERIOD), (12 * PERIOD, 12 * PERIOD)]
    matched, _, waits = measured(of_ring(make_trace, calls, steps=steps))
    assert (matched.total, matched.matched) == (118, 118)
    assert matched.lost == [0, 1, 1, 0, 0]
    spans = [float(np.ptp(waits.arrival[a:b])) for a, b in pairwise(matched.first.tolist())]
    assert max(spans) == 100_000
