"""Slowdown of device work that overlaps communication, in replays that change the overlap.

A rank that waits for a late peer waits in a collective, and its other kernels run slower meanwhile (1.03 to 1.6 times,
measured). If the peer were in time, they would run alone. A replay with recorded durations keeps them slow, so that the
late peer's extra time seems to be needed, and costs are underestimated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.replay.graph import Graph, Work
from rankscope.analysis.replay.longest_path import Changed
from rankscope.analysis.replay.what_if import Replay

__all__ = ["OverlapSlowdown"]

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]

AT_ONCE = 1 << 18
"""Number of edges whose times are compared at a time."""

ROUNDS = 2
"""Replays after the first one. Durations depend on when calls run, and the reverse; a third replay changes costs by
less than 1 %."""


@dataclass(slots=True)
class OverlapSlowdown:
    """The device work of a graph, with the share of each piece that overlaps communication of its own rank."""

    graph: Graph
    lost: float
    """Share of the speed that is lost under communication, 0 to 1: 0.2 for a kernel that takes 1.25 times as long."""
    _edges: I32
    """Edges that carry device work, in ascending order. The work begins at their source."""
    _pieces: I32
    """Indices of these edges, sorted by rank and then by source: edges from one piece of work follow each other, and
    are looked up among the calls in order."""
    _alone: F64
    """Duration of the work without any overlap, as a share of its recorded duration."""

    @classmethod
    def of(cls, graph: Graph, lost: float) -> OverlapSlowdown:
        """Measure the overlap in the recorded times."""
        edges = np.flatnonzero((graph.label == Work.DEVICE) & (graph.work > 0)).astype(np.int32)
        pieces = np.lexsort((graph.source[edges], graph.owner[edges])).astype(np.int32)
        found = cls(graph, lost, edges, pieces, np.empty(0))
        found._alone = found._covered(graph.recorded, graph.work[edges])
        found._alone *= -lost
        found._alone += 1.0
        return found

    def gains(self, replay: Replay, changed: Changed) -> F64:
        """Return what :meth:`Replay.gains` does, with durations of device work that match its overlap after the
        change."""
        if self.lost <= 0:
            return replay.gains(changed)
        at = self.graph.replay(changed)
        device, other = np.zeros((2, len(self.graph.source)), np.bool_)
        device[self._edges] = other[changed.edges] = True
        edges = np.flatnonzero(device | other).astype(np.int32)
        work, mine = self.graph.work[edges], np.flatnonzero(device[edges]).astype(np.int32)
        work[other[edges]] = changed.work
        del device, other
        alone = work[mine] * self._alone
        for _ in range(ROUNDS):
            share = self._covered(at, work[mine])
            share *= -self.lost
            share += 1.0
            work[mine] = alone / share
            at = self.graph.replay(Changed(edges, work))
        return replay.gains_at(at)

    def _covered(self, at: F64, length: F64) -> F64:
        """Share of each piece of device work that runs while a call of its rank is on the device; 0 for removed ones,
        whose length is infinitely negative."""
        graph = self.graph
        blocks = [self._pieces[first : first + AT_ONCE] for first in range(0, len(self._edges), AT_ONCE)]
        latest = max((float((at[graph.source[self._edges[b]]] + length[b]).max()) for b in blocks), default=0.0)
        origin = min(float(at.min()), 0.0)
        # The ranks follow each other on one time axis.
        room = np.int64(max(float(at.max()), latest) - origin) + 2
        calls = graph.member.astype(np.int64) * room
        busy = intervals.union(
            calls + (at[graph.starts] - origin).astype(np.int64), calls + (at[graph.ends] - origin).astype(np.int64)
        )
        share: F64 = np.empty(len(length))
        for block in blocks:
            edges, long = self._edges[block], length[block]
            source = graph.source[edges]
            head = np.append(True, (source[1:] != source[:-1]) | (long[1:] != long[:-1]))
            edges, source, long = edges[head], source[head], np.maximum(long[head], 0.0)
            begin, owner = at[source], graph.owner[edges].astype(np.int64)
            first = owner * room + (begin - origin).astype(np.int64)
            last = owner * room + (begin + long - origin).astype(np.int64)
            covered = np.zeros(len(first))
            np.divide(intervals.cover(busy, first, last), last - first, out=covered, where=last > first)
            share[block] = covered[np.cumsum(head) - 1]
        return share
