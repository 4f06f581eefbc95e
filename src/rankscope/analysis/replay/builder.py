"""Put the graph of a window together: nodes and edges in any order, then sorted so that every edge points forward.

Ranks add their edges one after the other. All edges into a node come together, so that they are sorted by their targets
rank by rank, which the cache holds. Sorting the whole graph then moves each edge once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankscope.analysis.replay.graph import Graph, Stops, Work
from rankscope.analysis.replay.longest_path import Levels, level_of
from rankscope.statistics.grouping import ranges
from rankscope.trace.scratch import Array, GrowingTable, Scratch

__all__ = ["Builder"]

F64 = NDArray[np.float64]
I8 = NDArray[np.int8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

NOTHING: I64 = np.empty(0, np.int64)

WIDE = 16
"""Graphs of more than this number of ranks are replayed by levels."""
AT_ONCE = 1 << 20
"""Number of nodes or edges that are handled at a time, where each needs a multiple of its memory."""
DEEPEST = 64
"""Largest number of nodes of equal time that are sorted along a chain of edges. It bounds the work on a cycle."""

_NODE = (np.float64, np.int8, np.bool_)
"""Kinds of the columns of nodes: time, rise, and whether the time is fixed."""
_EDGE = (np.int32, np.int32, np.float64, np.float64, np.int8, np.int32, np.int32)
"""Kinds of the columns of edges: target, source, base, work, label, owner and segment."""
_DEVICE = (np.int32, np.int32, np.float64)
"""Kinds of the columns of device work: owner, segment and duration."""
_STOP = (np.int32, np.int64, np.int32, np.int32)
"""Kinds of the columns of :class:`Stops`; the last two are provisional nodes."""


@dataclass(slots=True)
class Builder:
    """Collects the nodes and edges of a graph. Numbers of nodes are provisional until it is finished."""

    count: int = 0
    """Number of nodes so far, which is the provisional number of the next."""
    residual: float = 0.0
    ranks: int = 0
    """One more than the largest column of a rank that owns an edge."""
    _nodes: GrowingTable = field(default_factory=lambda: GrowingTable(_NODE))
    _new: list[tuple[NDArray[Any], ...]] = field(default_factory=list)
    """Edges that are not sorted yet."""
    _edges: GrowingTable = field(default_factory=lambda: GrowingTable(_EDGE))
    """Edges that are: all into one node are neighbours, in the order in which they were added."""
    _device: GrowingTable = field(default_factory=lambda: GrowingTable(_DEVICE))
    _pinned: list[I64 | I32] = field(default_factory=list)
    _stops: GrowingTable = field(default_factory=lambda: GrowingTable(_STOP))
    _pieces: Scratch = field(default_factory=Scratch)
    """Apart from the graph, so that its files go with it."""

    def nodes(self, time: ArrayLike, rise: int, *, fixed: ArrayLike = False) -> I64:
        """Add nodes and return their provisional numbers. ``time`` is in ns; ``rise`` orders nodes of equal time."""
        times = np.atleast_1d(np.asarray(time, np.float64))
        size = len(times)
        self._nodes.append(times, np.full(size, rise), np.broadcast_to(fixed, size))
        self.count += size
        return np.arange(self.count - size, self.count)

    def pin(self, nodes: I64 | I32) -> None:
        """Fix nodes at their recorded time."""
        self._pinned.append(nodes)

    def keep(self, column: Array) -> Array:
        """Return the same values, in a scratch file if there are many."""
        return self._pieces.keep(column)

    def edges(
        self,
        target: ArrayLike,
        source: ArrayLike,
        base: ArrayLike,
        work: ArrayLike = 0.0,
        label: ArrayLike = Work.NONE,
        owner: ArrayLike = -1,
        segment: ArrayLike = -1,
    ) -> None:
        """Add edges: each ``target`` happens no earlier than ``source + base + work`` (ns). Single values hold for
        all."""
        size = np.broadcast(np.atleast_1d(target), source, base).size
        given = target, source, base, work, label, owner, segment
        self.ranks = max(self.ranks, int(np.max(owner, initial=-1)) + 1)
        self._new.append(tuple(_column(v, kind, size) for v, kind in zip(given, _EDGE, strict=True)))

    def settle(self) -> None:
        """Take the new edges as all the edges of their targets: later ones may not point to these nodes."""
        if not self._new:
            return
        target, *others = (np.concatenate(column) for column in zip(*self._new, strict=True))
        self._new.clear()
        order = _by_target(target)
        self._edges.append(target[order], *(column[order] for column in others))

    def device(self, owner: int, segment: I64, ns: F64) -> None:
        """Add pieces of device work."""
        self._device.append(np.full(len(ns), owner), segment, ns)

    def stops(self, owner: int, event: I64, asked: I64, done: I64) -> None:
        """Add calls in which a host waits for its device."""
        self._stops.append(np.full(len(event), owner), event, asked, done)

    def finish(self, ends: I64, starts: I64 = NOTHING, member: NDArray[np.integer[Any]] = NOTHING) -> Graph:
        """Drop edges that point backwards in time, sort the nodes by level or by time, and renumber them.

        Args:
            ends: nodes at which the members of the matched calls end.
            starts: nodes at which these members start.
            member: columns of these members.
        """
        self.settle()
        time, rise, fixed = self._nodes.columns()
        for nodes in self._pinned:
            fixed[nodes] = True
        columns, graph = self._edges.columns(), Scratch()
        target, source = next(columns), next(columns)
        order, backward = _in_time(time, rise, source, target)
        into = _Into(target, len(time), backward)
        del rise, target
        bounds: list[int] | None = None
        if self.ranks > WIDE:
            level = self._level(order, into, source, fixed)
            bounds = np.cumsum(np.concatenate(([0], np.bincount(level)))).tolist()
            narrow = level.astype(np.uint16) if len(bounds) < 1 << 16 else level  # sorted by radix
            order = order[np.argsort(narrow, kind="stable")]
            del level, narrow
        place, first = _inverse(order), _begins(into.count[order])
        kept = Scratch().joined(int(first[-1]), np.int32, map(into.of, _blocks(order)))
        del into
        source = graph.joined(len(kept), np.int32, (place[source[these]] for these in _blocks(kept)))
        recorded, fixed = graph.keep(time[order]), graph.keep(fixed[order])
        starting = graph.keep(first.astype(np.int64))
        del time, order, first
        base, work, label, owner, segment = (
            graph.joined(len(kept), column.dtype, (column[these] for these in _blocks(kept))) for column in columns
        )
        owners, events, asked, done = self._stops.columns()
        device_owner, device_segment, device_work = map(graph.keep, self._device.columns())
        return Graph(
            recorded=recorded,
            fixed=fixed,
            first=starting,
            source=source,
            base=base,
            work=work,
            label=label,
            owner=owner,
            segment=segment,
            device_owner=device_owner,
            device_segment=device_segment,
            device_work=device_work,
            ends=graph.keep(place[ends]),
            starts=graph.keep(place[starts]),
            member=graph.keep(member.astype(np.int32)),
            stops=Stops(owners, events, place[asked], place[done]),
            residual_ns=self.residual,
            dropped=len(backward),
            levels=None if bounds is None else Levels(starting, source, bounds),
        )

    def _level(self, order: I32, into: _Into, source: I32, fixed: Mask) -> I32:
        """Return the level of each node, in their order by time, in which those of each level lie near one another."""
        place, count = _inverse(order), into.count[order]
        near = (place[source[into.of(nodes)]] for nodes in _blocks(order))
        by_time = Scratch().joined(int(count.sum()), np.int32, near)
        return level_of(_begins(count), by_time, fixed[order], self.ranks)


class _Into:
    """The edges into each node."""

    def __init__(self, target: I32, nodes: int, without: I64) -> None:
        """Find the edges into each node.

        Args:
            target: target of each edge; edges into one node are neighbours.
            nodes: number of nodes.
            without: edges that are left out, in ascending order.

        Raises:
            ValueError: edges into one node are no neighbours.
        """
        self._kept: I32 | None = None
        if len(without):
            self._kept = np.delete(np.arange(len(target), dtype=np.int32), without)
            target = target[self._kept]
        self._begin, self.count = np.zeros(nodes, np.int32), np.zeros(nodes, np.int32)
        for begin in range(0, len(target), AT_ONCE):
            some = target[begin : begin + AT_ONCE]
            heads = np.append(0, np.flatnonzero(some[1:] != some[:-1]) + 1)
            length, node = np.diff(heads, append=len(some)).astype(np.int32), some[heads]
            if begin and node[0] == target[begin - 1]:
                self.count[node[0]] += length[0]
                heads, length, node = heads[1:], length[1:], node[1:]
            self._begin[node], self.count[node] = begin + heads, length
        if self.count.sum() < len(target):
            raise ValueError("edges into one node are no neighbours")

    def of(self, nodes: I32) -> I32:
        """Return the edges into these nodes, node by node."""
        edges = ranges(self._begin[nodes], self.count[nodes]).astype(np.int32, copy=False)
        return edges if self._kept is None else self._kept[edges]


def _depth(nodes: int, rise: I8, source: I32, target: I32) -> I32:
    """Return a depth that orders nodes of equal time along their edges; traces in whole microseconds have many of them.

    ``rise`` orders most of them. A depth other than 0 is given only where it would put a source after its target.

    Args:
        nodes: number of nodes.
        rise: of each node.
        source: of each edge between two nodes of equal time.
        target: likewise.
    """
    depth = np.zeros(nodes, np.int32)
    proper = source != target
    source, target = source[proper], target[proper]
    before = (rise[source] < rise[target]) | ((rise[source] == rise[target]) & (source < target))
    if before.all():
        return depth
    for _ in range(DEEPEST):
        late = depth[source] >= depth[target]
        if not late.any():
            break
        np.maximum.at(depth, target[late], depth[source[late]] + 1)
    return depth


def _column(values: ArrayLike, kind: Any, size: int) -> NDArray[Any]:
    """Return the values, or a single one ``size`` times. ``np.broadcast_to`` takes ten times as long."""
    given = np.asarray(values, kind)
    return given if given.shape == (size,) else np.full(size, given)


def _in_time(time: F64, rise: I8, source: I32, target: I32) -> tuple[I32, I64]:
    """Sort nodes by time. Return their order, and the edges that point backwards in it."""
    tied, backward = [NOTHING], [NOTHING]
    for begin in range(0, len(source), AT_ONCE):
        one, other = source[begin : begin + AT_ONCE], target[begin : begin + AT_ONCE]
        ahead = time[other] - time[one]
        tied.append(np.flatnonzero(ahead == 0) + begin)
        backward.append(np.flatnonzero(ahead < 0) + begin)
    equal = np.concatenate(tied)
    order = _sorted(time, _depth(len(time), rise, source[equal], target[equal]), rise)
    if len(equal):
        place = _inverse(order)
        backward.append(equal[place[source[equal]] >= place[target[equal]]])
    return order, np.sort(np.concatenate(backward))


def _sorted(time: F64, depth: I32, rise: I8) -> I32:
    """Sort nodes by time, then by depth and by rise; what ``lexsort`` gives, faster where few times are equal."""
    order = np.argsort(time, kind="stable").astype(np.int32)
    ordered = time[order]
    equal = ordered[1:] == ordered[:-1]
    tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False)) if len(equal) else np.empty(0, np.int64)
    some = order[tied]  # nodes of one time are in the order in which they were added
    order[tied] = some[np.lexsort((rise[some], depth[some], time[some]))]
    return order


def _by_target(target: I32) -> I32:
    """Return what a stable ``argsort`` does. Sorting numbers of which the lower half is the place needs half the memory
    and time."""
    both = target.astype(np.int64)
    both <<= 32
    both |= np.arange(len(target))
    both.sort()
    return both.astype(np.int32)  # the lower half


def _inverse(order: I32) -> I32:
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return place


def _begins(count: I32) -> I32:
    return np.concatenate((np.zeros(1, np.int32), np.cumsum(count, dtype=np.int32)))


def _blocks(nodes: I32) -> Iterator[I32]:
    return (nodes[begin : begin + AT_ONCE] for begin in range(0, len(nodes), AT_ONCE))
