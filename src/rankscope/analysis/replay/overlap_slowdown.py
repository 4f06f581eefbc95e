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

CONSISTENT = 0.0025
"""Replays are repeated until the durations that they assume agree with the overlap that they yield: on each rank within
this share of its device work, an eighth of what makes a rank worth naming."""
ROUNDS = 16
"""Most replays after the first one. With a loss of 5 % two suffice, with 25 % fourteen were needed."""
FEW_ROUNDS = 2
"""As many at least, however large the graph."""
EDGES = 1 << 22
"""Number of edges over all repetitions, which bounds the time for large graphs."""


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
    _source: I32
    """Source and rank of each piece; in memory, because a rank's are everywhere in the graph's columns."""
    _owner: I32
    _calls: I32
    """Members of calls, sorted by rank and then by recorded start, which most replays do not change."""
    _alone: F64
    """Duration of the work without any overlap, as a share of its recorded duration."""

    @classmethod
    def of(cls, graph: Graph, lost: float) -> OverlapSlowdown:
        """Measure the overlap in the recorded times."""
        edges = np.flatnonzero((graph.label == Work.DEVICE) & (graph.work > 0)).astype(np.int32)
        source, owner = graph.source[edges], graph.owner[edges]
        pieces = np.lexsort((source, owner)).astype(np.int32)
        calls = np.lexsort((graph.recorded[graph.starts], graph.member)).astype(np.int32)
        found = cls(graph, lost, edges, pieces, source[pieces], owner[pieces], calls, np.empty(0))
        found._alone = found._covered(np.array(graph.recorded), graph.work[edges])
        found._alone *= -lost
        found._alone += 1.0
        return found

    def gains(self, replay: Replay, changed: Changed) -> F64:
        """Return what :meth:`Replay.gains` does, with durations of device work that match its overlap after the
        change.

        Durations depend on when calls run, and the reverse. A rank that is a little ahead waits beside all its work and
        is slower for it, so that in the next replay it is behind, and in the one after that ahead again. Half of each
        change of the overlap is therefore taken. The first replay is without any slowdown: with the recorded durations
        those that waited would stay behind for a dozen repetitions, and hide half of what a slow device costs.
        """
        if self.lost <= 0:
            return replay.gains(changed)
        device, other = np.zeros((2, len(self.graph.source)), np.bool_)
        device[self._edges] = other[changed.edges] = True
        edges = np.flatnonzero(device | other).astype(np.int32)
        work, mine = self.graph.work[edges], np.flatnonzero(device[edges]).astype(np.int32)
        work[other[edges]] = changed.work
        del device, other
        alone = work[mine] * self._alone
        kept = np.isfinite(alone)  # the others are removed
        owner = self.graph.owner[self._edges[kept]]
        work[mine] = took = alone
        gains, share = self._replayed(replay, Changed(edges, work), took)
        for _ in range(int(np.clip(EDGES // max(len(mine), 1), FEW_ROUNDS, ROUNDS))):
            work[mine] = took = alone / (1.0 - self.lost * share)
            gains, found = self._replayed(replay, Changed(edges, work), took)
            off = np.bincount(owner, np.abs(alone[kept] / (1.0 - self.lost * found[kept]) - took[kept]))
            if (off <= CONSISTENT * np.bincount(owner, took[kept])).all():
                break
            share += found
            share /= 2.0
        return gains

    def _replayed(self, replay: Replay, changed: Changed, took: F64) -> tuple[F64, F64]:
        """Return the gain of each step, and the covered share of each piece of device work that ``took`` so long."""
        at = self.graph.replay(changed)
        return replay.gains_at(at), self._covered(at, took)

    def _covered(self, at: F64, length: F64) -> F64:
        """Share of each piece of device work that runs while a call of its rank is on the device; 0 for removed ones,
        whose length is infinitely negative."""
        graph = self.graph
        blocks = [slice(first, first + AT_ONCE) for first in range(0, len(self._pieces), AT_ONCE)]
        latest = max((float((at[self._source[b]] + length[self._pieces[b]]).max()) for b in blocks), default=0.0)
        origin = min(float(at.min()), 0.0)
        # The ranks follow each other on one time axis.
        room = np.int64(max(float(at.max()), latest) - origin) + 2
        calls, axis = self._calls, graph.member[self._calls].astype(np.int64) * room
        starts, ends = (axis + (at[nodes[calls]] - origin).astype(np.int64) for nodes in (graph.starts, graph.ends))
        busy = intervals.union(starts, ends)
        share: F64 = np.empty(len(length))
        for block in blocks:
            source, owner, long = self._source[block], self._owner[block], length[self._pieces[block]]
            head = np.append(True, (source[1:] != source[:-1]) | (long[1:] != long[:-1]))
            long = np.maximum(long[head], 0.0)
            begin, owner = at[source[head]], owner[head].astype(np.int64)
            first = owner * room + (begin - origin).astype(np.int64)
            last = owner * room + (begin + long - origin).astype(np.int64)
            covered = np.zeros(len(first))
            np.divide(intervals.cover(busy, first, last), last - first, out=covered, where=last > first)
            share[self._pieces[block]] = covered[np.cumsum(head) - 1]
        return share
