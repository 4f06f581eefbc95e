"""The recorded window as a max-plus graph: when each host call, kernel and collective could start, given the others.

Nodes are points in time; a node happens at the latest of ``source + weight`` over its edges. They are:

- *host points* of one chain per rank (the threads that launch or wait; main and autograd threads take turns): the
  start of each launch, the end of each blocking call. The gaps between are host work.
- *device work*: starts after its launch, after what ran before on its stream and, behind a wait call, after the last
  work of the other streams. The duration is device work.
- *ends of collectives*: the last arrival over all ranks plus the transfer, as recorded on each rank.

What the rules do not explain stays as a constant residual, so that replaying the graph unchanged gives the recorded
times; nodes launched before the window are fixed. Edges never point backwards in recorded time, so there are no cycles.
On a CPU-only trace the backend's operators stand in for device work on one stream a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

__all__ = ["Builder", "Graph", "Work"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class Work(IntEnum):
    """Labels of edges that carry work, for scaling."""

    NONE = 0
    HOST = 1
    DEVICE = 2
    TRANSFER = 3


@dataclass(slots=True)
class Graph:
    """Nodes in an order in which every edge points forward. Edges of node i: ``first[i]:first[i + 1]``."""

    recorded: F64
    """Recorded (aligned) time of each node, ns."""
    fixed: NDArray[np.bool_]
    first: I64
    source: I64
    base: F64
    """Weight that no scenario changes, ns."""
    work: F64
    """Part of the weight that is work, ns; a scenario scales it."""
    label: NDArray[np.int8]
    """A :class:`Work` per edge."""
    owner: NDArray[np.int32]
    """Column of the rank whose work the edge carries."""
    segment: NDArray[np.int32]
    """How many matched calls the rank had launched before the edge's work."""
    device_owner: NDArray[np.int32]
    """Column, segment and ns of each piece of device work, once (``work`` repeats it on every edge that leaves it)."""
    device_segment: NDArray[np.int32]
    device_work: F64
    ends: NDArray[np.int64]
    """Node of each matched call's end per rank (M x R), -1 absent."""
    residual_ns: float = 0.0
    """How long device work started after the rules say it could, summed over all of it."""
    dropped: int = 0
    """Edges left out because they pointed backwards in time."""

    def replay(self, work: F64 | None = None) -> F64:
        """Times of all nodes with the given work per edge (default: as recorded)."""
        weights = (self.base + (self.work if work is None else work)).tolist()
        source, first = self.source.tolist(), self.first.tolist()
        fixed, recorded = self.fixed.tolist(), self.recorded.tolist()
        at: list[float] = [0.0] * len(recorded)
        for node in range(len(recorded)):
            low, high = first[node], first[node + 1]
            if fixed[node] or low == high:
                at[node] = recorded[node]
                continue
            best = at[source[low]] + weights[low]
            for edge in range(low + 1, high):
                other = at[source[edge]] + weights[edge]
                if other > best:
                    best = other
            at[node] = best
        return np.array(at)


@dataclass(slots=True)
class Builder:
    """Collects nodes and edges in any order, then sorts them by recorded time."""

    time: list[float] = field(default_factory=list)
    rise: list[int] = field(default_factory=list)
    """Order among nodes of the same time."""
    pinned: list[bool] = field(default_factory=list)
    edges: list[tuple[int, int, float, float, int, int, int]] = field(default_factory=list)
    """(target, source, base, work, label, owner, segment)"""
    device: list[tuple[int, int, float]] = field(default_factory=list)
    """(owner, segment, ns) of each piece of device work."""
    residual: float = 0.0

    def node(self, time: float, rise: int, *, fixed: bool = False) -> int:
        """Add a node; returns its provisional number."""
        self.time.append(time)
        self.rise.append(rise)
        self.pinned.append(fixed)
        return len(self.time) - 1

    def edge(
        self,
        target: int,
        source: int,
        base: float,
        work: float = 0.0,
        label: int = Work.NONE,
        owner: int = -1,
        segment: int = -1,
    ) -> None:
        """``target`` happens no earlier than ``source + base + work``."""
        self.edges.append((target, source, base, work, label, owner, segment))

    def finish(self, ends: I64) -> Graph:
        """Sort, drop what points backwards, and number the nodes anew."""
        count = len(self.time)
        order = np.lexsort((np.array(self.rise, np.int64), np.array(self.time)))
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        # float64 holds node numbers and labels exactly
        table = np.array(self.edges, np.float64).reshape(-1, 7)
        target, source = place[table[:, 0].astype(np.int64)], place[table[:, 1].astype(np.int64)]
        forward = source < target
        numbers, labels = table[forward, 2:4], table[forward, 4:7]
        target, source = target[forward], source[forward]
        by_target = np.argsort(target, kind="stable")
        target, source = target[by_target], source[by_target]
        numbers, labels = numbers[by_target], labels[by_target]
        device = np.array(self.device, np.float64).reshape(-1, 3)
        renumbered = np.where(ends >= 0, place[ends.clip(0)], -1)
        return Graph(
            recorded=np.array(self.time)[order],
            fixed=np.array(self.pinned, np.bool_)[order],
            first=np.searchsorted(target, np.arange(count + 1)).astype(np.int64),
            source=source,
            base=numbers[:, 0],
            work=numbers[:, 1],
            label=labels[:, 0].astype(np.int8),
            owner=labels[:, 1].astype(np.int32),
            segment=labels[:, 2].astype(np.int32),
            device_owner=device[:, 0].astype(np.int32),
            device_segment=device[:, 1].astype(np.int32),
            device_work=device[:, 2],
            ends=renumbered,
            residual_ns=self.residual,
            dropped=int((~forward).sum()),
        )
