"""A candidate (one possible reason on one rank), and the data in which candidates are searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.clocks.steps import JobSteps
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.segments import Plan
from rankscope.analysis.replay.what_if import Replay
from rankscope.analysis.stragglers.kernel_table import KernelTable
from rankscope.analysis.stragglers.profile import Profile
from rankscope.statistics.grouping import grouped

__all__ = ["Candidate", "Window"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def _nothing() -> I64:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class Candidate:
    """One possible reason on one rank, and the time that its removal saves."""

    column: int
    cause: str
    edges: I64
    less: F64
    """Time to take off the work of each of these edges of the graph, in ns; shape as ``edges``."""
    extra: float
    """Time beyond the usual, summed over the window, in ns."""
    error: float
    """Standard error of ``extra``, as a share of it."""
    cut: I64 = field(default_factory=_nothing)
    """Edges to remove: their target no longer waits for their source."""
    free: I64 = field(default_factory=_nothing)
    """Edges whose weight becomes 0."""


@dataclass(slots=True)
class Window:
    """Data of one window in which candidates are searched."""

    replay: Replay
    views: Sequence[RankView]
    clocks: Clocks
    plan: Plan
    profiles: Sequence[Profile]
    steps: JobSteps
    trusted: NDArray[np.bool_]
    """Per rank: whether it lost no more device records than the others."""
    complete: bool
    """Whether no rank lost device records, so that the numbers of records can be compared."""
    matched: Matched
    mesh: str
    """Which kind of mesh it is (:mod:`model_error`)."""
    _edges: dict[Work, tuple[NDArray[np.int32], I64]] = field(default_factory=dict)
    """Per label the edges that carry such work, sorted by rank, and the index of the first edge of each rank."""

    @property
    def device(self) -> bool:
        """Whether any rank recorded work of a device."""
        return any(view.device for view in self.views)

    def edges(self, column: int, label: Work) -> I64:
        """Edges that carry work of this label on this rank."""
        if label not in self._edges:
            graph = self.replay.graph
            edges = np.flatnonzero((graph.label == label) & (graph.work > 0)).astype(np.int32)
            order, bounds = grouped(graph.owner[edges], len(self.views))
            self._edges[label] = edges[order], bounds
        known, bounds = self._edges[label]
        return known[bounds[column] : bounds[column + 1]].astype(np.int64)

    def host_time(self, column: int, spans: intervals.Spans) -> tuple[I64, F64]:
        """Return the edges of the rank's host work, and the overlap of each with ``spans`` (own clock), in ns."""
        edges = self.edges(column, Work.HOST)
        graph = self.replay.graph
        # The work of a host edge ends at the recorded time of its target.
        aligned = tuple(self.clocks.aligned(column, part).astype(np.int64) for part in spans)
        end = graph.recorded[np.searchsorted(graph.first, edges, side="right") - 1]
        begin = end - graph.work[edges]
        inside = intervals.cover((aligned[0], aligned[1]), begin.astype(np.int64), end.astype(np.int64))
        return edges, inside.astype(np.float64)

    def segments(self, table: KernelTable) -> I64:
        """Segment in which each kernel was launched; shape (rows of the table,)."""
        place = np.empty(len(table.rank), np.int64)
        for column in range(table.ranks):
            mine = table.of(column)
            place[mine] = self.plan.segment_of(column, table.launched[mine])
        return place
