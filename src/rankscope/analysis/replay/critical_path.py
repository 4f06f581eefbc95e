"""The chain of work that decides how long the recorded steps take: walked back from the end of the last one.

At each point in time the graph says which of the things it waited for came last. Shortening anything that is not on
this chain gains nothing. It passes from rank to rank where a collective waits for the last one to arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.replay.graph import Graph, Work
from rankscope.analysis.replay.what_if import Replay

__all__ = ["Chain", "Part", "critical_path"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class Part(IntEnum):
    """What a piece of the chain is. The first three are :class:`Work`."""

    LAUNCH = 0
    """Neither work nor transfer: from a launch to the start of its work, between two kernels, the tail of a wait."""
    HOST = 1
    DEVICE = 2
    TRANSFER = 3


@dataclass(frozen=True, slots=True)
class Chain:
    """Pieces in order of time, each beginning where the last one ended. One entry each."""

    start: F64
    """ns on the aligned axis, by the unchanged replay; likewise the next."""
    end: F64
    part: NDArray[np.int8]
    """A :class:`Part`."""
    column: I64
    """Of the rank, -1 where it is not known."""
    call: I64
    """Of a transfer its matched call, else -1."""

    def within(self, begin: float, end: float) -> Chain:
        """The pieces of a stretch of time, cut to it."""
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
    """Walk back from the end of the last step to what no rule explains, or to the begin of the first step."""
    graph = replay.graph
    at, weight = graph.replay(), graph.base + graph.work
    owner = _owners(graph)
    first, source = graph.first, graph.source
    node = int(replay.step_calls[-1][np.argmax(at[replay.step_calls[-1]])])
    pieces: list[tuple[float, float, int, int, int]] = []  # in order of time, the latest first
    while not graph.fixed[node] and at[node] > replay.begin:
        low, high = int(first[node]), int(first[node + 1])
        if low == high:
            break
        edge = low + int(np.argmax(at[source[low:high]] + weight[low:high]))
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


def _owners(graph: Graph) -> I64:
    """Column of the rank that each node is a point in time of, as far as its edges say; -1 for what ranks share."""
    owner = np.full(len(graph.recorded), -1, np.int64)
    target = np.repeat(np.arange(len(graph.recorded)), np.diff(graph.first))
    mine = np.flatnonzero((graph.label == Work.HOST) | (graph.label == Work.DEVICE))
    owner[target[mine]] = graph.owner[mine]
    owner[graph.source[mine]] = graph.owner[mine]
    owner[graph.starts] = graph.member
    owner[graph.ends] = graph.member
    return owner
