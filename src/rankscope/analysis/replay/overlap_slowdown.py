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
from rankscope.analysis.replay.what_if import Replay

__all__ = ["OverlapSlowdown"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

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
    _edges: I64
    """Edges that carry device work. The work begins at their source."""
    _alone: F64
    """Duration of the work without any overlap, as a share of its recorded duration."""

    @classmethod
    def of(cls, graph: Graph, lost: float) -> OverlapSlowdown:
        """Measure the overlap in the recorded times."""
        edges = np.flatnonzero((graph.label == Work.DEVICE) & (graph.work > 0))
        # rank by rank, so that they are looked up among the calls in order
        edges = edges[np.argsort(graph.owner[edges], kind="stable")]
        found = cls(graph, lost, edges, np.ones(len(edges)))
        found._alone = 1.0 - lost * found._covered(graph.recorded, graph.work[edges], edges)
        return found

    def gains(self, replay: Replay, work: F64) -> F64:
        """Return what :meth:`Replay.gains` does, with durations of device work that match its overlap after the
        change."""
        if self.lost <= 0:
            return replay.gains(work)
        kept = np.isfinite(work[self._edges])  # the others are removed
        edges, work = self._edges[kept], work.copy()
        alone = work[edges] * self._alone[kept]
        at = self.graph.replay(work)
        for _ in range(ROUNDS):
            work[edges] = alone / (1.0 - self.lost * self._covered(at, work[edges], edges))
            at = self.graph.replay(work)
        return replay.gains_at(at)

    def _covered(self, at: F64, length: F64, edges: I64) -> F64:
        """Share of each piece of device work that runs while a call of its rank is on the device."""
        graph = self.graph
        blocks = [slice(first, first + AT_ONCE) for first in range(0, len(edges), AT_ONCE)]
        latest = max((float((at[graph.source[edges[some]]] + length[some]).max()) for some in blocks), default=0.0)
        origin = min(float(at.min()), 0.0)
        # The ranks follow each other on one time axis.
        room = np.int64(max(float(at.max()), latest) - origin) + 2
        calls = graph.member.astype(np.int64) * room
        busy = intervals.union(
            calls + (at[graph.starts] - origin).astype(np.int64), calls + (at[graph.ends] - origin).astype(np.int64)
        )
        share: F64 = np.zeros(len(edges))
        for some in blocks:
            begin, owner = at[graph.source[edges[some]]], graph.owner[edges[some]].astype(np.int64)
            first = owner * room + (begin - origin).astype(np.int64)
            last = owner * room + (begin + length[some] - origin).astype(np.int64)
            np.divide(intervals.cover(busy, first, last), last - first, out=share[some], where=last > first)
        return share
