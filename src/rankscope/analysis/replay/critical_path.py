"""The critical path of the recorded steps, found backwards from the end of the last one.

At each node, the graph shows which of the events it waited for came last. Shortening work that is not on this path
gains nothing. The path passes from rank to rank where a collective waits for the last arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank.select import one_of
from rankscope.analysis.replay.graph import Graph, Work
from rankscope.analysis.replay.what_if import Replay
from rankscope.trace.scratch import release

__all__ = ["Chain", "Part", "critical_path"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

AT_ONCE = 1 << 18
"""Number of nodes whose edges are looked at together."""
RELEASED = 256
"""Number of pieces of the path after which the pages of scratch files are released: each maps some 400 kB."""


class Part(IntEnum):
    """Kind of a piece of the path. All but the first are those of :class:`Work`."""

    LAUNCH = 0
    """Neither work nor transfer: between a launch and its device work, between two kernels, or at the end of a wait."""
    HOST = 1
    DEVICE = 2
    TRANSFER = 3


@dataclass(frozen=True, slots=True)
class Chain:
    """Pieces of the path in order of time, each beginning where the previous one ended; arrays of shape (pieces,)."""

    start: F64
    """Begin of the piece by the unchanged replay, in ns of the aligned clock; ``end`` likewise."""
    end: F64
    part: NDArray[np.int8]
    """A :class:`Part` each."""
    column: I64
    """Column of the rank, -1 where unknown."""
    call: I64
    """Matched call of a transfer, else -1."""

    def within(self, begin: float, end: float) -> Chain:
        """Return the pieces within an interval (ns, aligned clock), clipped to it."""
        low, high = np.searchsorted(self.end, begin, "right"), np.searchsorted(self.start, end, "left")
        part = slice(int(low), int(high))
        return Chain(
            np.maximum(self.start[part], begin),
            np.minimum(self.end[part], end),
            self.part[part],
            self.column[part],
            self.call[part],
        )


def critical_path(replay: Replay) -> Chain:
    """Follow the path back from the end of the last step to the begin of the first one, or to a node without known
    cause."""
    graph = replay.graph
    at = graph.replay()
    owner = _owners(graph)
    first, source = graph.first, graph.source
    node = int(replay.step_calls[-1][np.argmax(at[replay.step_calls[-1]])])
    pieces: list[tuple[float, float, int, int, int]] = []  # the latest piece first
    released = 0
    while not graph.fixed[node] and at[node] > replay.begin:
        if len(pieces) >= released + RELEASED:
            release()
            released = len(pieces)
        low, high = int(first[node]), int(first[node + 1])
        if low == high:
            break
        edge = low
        if high > low + 1:
            edge += int((at[source[low:high]] + (graph.base[low:high] + graph.work[low:high])).argmax())
        before = int(source[edge])
        begin, end = float(at[before]), float(at[node])
        label, own = int(graph.label[edge]), int(graph.owner[edge])
        if own < 0:
            own = int(owner[node]) if owner[node] >= 0 else int(owner[before])
        worked = min(begin + max(float(graph.work[edge]), 0.0), end) if label != Work.NONE else begin
        if end > worked:
            pieces.append((worked, end, Part.LAUNCH, own, -1))
        if worked > begin:
            pieces.append((begin, worked, label, own, int(graph.segment[edge]) if label == Work.TRANSFER else -1))
        node = before
    columns = np.array(pieces[::-1], np.float64).reshape(-1, 5).T
    start, end, part, column, call = columns
    return Chain(start, end, part.astype(np.int8), column.astype(np.int64), call.astype(np.int64))


def _owners(graph: Graph) -> NDArray[np.int32]:
    """Column of the rank to which each node belongs, as far as its edges show; -1 for nodes shared by ranks."""
    owner = np.full(len(graph.recorded), -1, np.int32)
    for begin in range(0, len(owner), AT_ONCE):
        bounds = graph.first[begin : begin + AT_ONCE + 1]
        edges = slice(int(bounds[0]), int(bounds[-1]))
        target = np.repeat(np.arange(begin, begin + len(bounds) - 1), np.diff(bounds))
        mine = np.flatnonzero(one_of(graph.label[edges], (Work.HOST, Work.DEVICE)))
        owner[target[mine]] = owner[graph.source[edges][mine]] = graph.owner[edges][mine]
    owner[graph.starts] = graph.member
    owner[graph.ends] = graph.member
    return owner
