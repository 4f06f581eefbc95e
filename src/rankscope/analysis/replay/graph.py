"""The recorded window as a max-plus graph: when each host call, kernel and collective can start, given the others.

Nodes are points in time. A node happens at the latest ``source + weight`` over its edges. There are:

- *Host points*, one chain per rank (the threads that launch or wait; main and autograd threads alternate): the start of
  each launch and the end of each blocking call. The time between them is host work.
- *Device work*: it starts after its launch, after earlier work of its stream and, behind a wait call, after the last
  work of the other streams. Its duration is device work.
- *Ends of collectives*: the last arrival over all ranks plus the transfer recorded on each rank.

Time that these rules do not explain stays as a constant residual, so that an unchanged replay gives the recorded times.
Nodes launched before the window are fixed. Edges never point backwards in recorded time, so that there are no cycles.
On a CPU-only trace the backend's operators stand for device work, with one stream for each thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankscope.analysis.replay.longest_path import Changed, Levels, by_node, level_of, ranges
from rankscope.trace.scratch import Array, Scratch

__all__ = ["Builder", "Graph", "Stops", "Work"]

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


NOTHING: I64 = np.empty(0, np.int64)

WIDE = 16
"""Graphs of more than this number of ranks are replayed by levels."""


AT_ONCE = 1 << 20
"""Number of edges that are handled at a time, where each needs a multiple of its memory."""

DEEPEST = 64
"""Largest number of nodes of equal time that are sorted along a chain of edges. It bounds the work on a cycle."""


class Work(IntEnum):
    """Kinds of work that an edge carries, so that it can be scaled."""

    NONE = 0
    HOST = 1
    DEVICE = 2
    TRANSFER = 3


@dataclass(frozen=True, slots=True)
class Stops:
    """Calls in which a host waited for its device; arrays of shape (calls,)."""

    owner: I32
    """Column of the rank."""
    event: I64
    """Row of the call in the rank's events."""
    asked: I32
    """Node at which the call began."""
    done: I32
    """Node at which it returned: after ``asked``, and after the device work that it waited for."""


@dataclass(slots=True)
class Graph:
    """Nodes in an order in which every edge points forward: by time, of many ranks by level (:mod:`longest_path`). The
    edges into node i are ``first[i]:first[i + 1]``."""

    recorded: F64
    """Recorded time of each node, in ns of the aligned clock."""
    fixed: NDArray[np.bool_]
    first: I64
    source: I32
    base: F64
    """Constant part of each edge's weight, in ns."""
    work: F64
    """Part of the weight that is work, in ns, and that assumptions change."""
    label: NDArray[np.int8]
    """A :class:`Work` for each edge."""
    owner: I32
    """Column of the rank whose work the edge carries."""
    segment: I32
    """Position of the segment to which the edge's work belongs; for a transfer, its matched call."""
    device_owner: I32
    """Column, segment and duration (ns) of each piece of device work, once; ``work`` repeats it on every outgoing
    edge."""
    device_segment: I32
    device_work: F64
    ends: I32
    """Node of the end of each matched call on each of its members."""
    starts: I32
    """Node of its start on each of its members."""
    member: I32
    """Column of each of these members."""
    stops: Stops
    """Calls in which hosts waited for their devices."""
    residual_ns: float = 0.0
    """Time by which device work started later than the rules allow, in ns, summed over all of it."""
    dropped: int = 0
    """Number of edges left out because they pointed backwards in time."""

    levels: Levels | None = None
    """Where the nodes are sorted by level."""
    _unchanged: F64 | None = None

    def replay(self, work: F64 | Changed | None = None) -> F64:
        """Return the times of all nodes for the given work per edge, in ns (default: the recorded work).

        Those of the recorded work are computed once, and may not be changed.
        """
        if work is not None:
            return self._replayed(work)
        if self._unchanged is None:
            self._unchanged = Scratch().keep(self._replayed(self.work))
            self._unchanged.flags.writeable = False
        return self._unchanged

    def _replayed(self, work: F64 | Changed) -> F64:
        if self.levels is None:
            whole = work.of_all(self.work) if isinstance(work, Changed) else work
            return by_node(self.first, self.source, self.base + whole, self.recorded, self.fixed)
        if isinstance(work, Changed):
            return self.levels.run(self.base, self.work, self.recorded, work)
        return self.levels.run(self.base, work, self.recorded)

    def transfers(self) -> tuple[I64, I64]:
        """Return the edges that carry transfers, and for each the member of a matched call that ends with it; -1 for
        none."""
        member = np.full(len(self.recorded), -1, np.int64)
        member[self.ends] = np.arange(len(self.ends))
        edges = np.flatnonzero(self.label == Work.TRANSFER)
        return edges, member[np.searchsorted(self.first, edges, side="right") - 1]


def _depth(time: F64, rise: NDArray[np.int8], source: I32, target: I32) -> I32:
    """Return a depth that orders nodes of equal time along their edges; traces in whole microseconds have many of them.

    ``rise`` orders most of them. A depth other than 0 is given only where it would put a source after its target.
    """
    depth = np.zeros(len(time), np.int32)
    found = [np.empty(0, np.int64)]
    for begin in range(0, len(source), AT_ONCE):
        one, other = source[begin : begin + AT_ONCE], target[begin : begin + AT_ONCE]
        found.append(np.flatnonzero((time[one] == time[other]) & (one != other)) + begin)
    tied = np.concatenate(found)
    source, target = source[tied], target[tied]
    before = (rise[source] < rise[target]) | ((rise[source] == rise[target]) & (source < target))
    if before.all():
        return depth
    for _ in range(DEEPEST):
        late = depth[source] >= depth[target]
        if not late.any():
            break
        np.maximum.at(depth, target[late], depth[source[late]] + 1)
    return depth


def _sorted(time: F64, depth: I32, rise: NDArray[np.int8]) -> I32:
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


@dataclass(slots=True)
class Builder:
    """Collects nodes and edges in any order, then sorts them by recorded time."""

    count: int = 0
    """Number of nodes so far, which is the provisional number of the next."""
    residual: float = 0.0
    ranks: int = 0
    """One more than the largest column of a rank that owns an edge."""
    _nodes: list[tuple[F64, NDArray[np.int8], NDArray[np.bool_]]] = field(default_factory=list)
    _edges: list[tuple[I32, I32, F64, F64, NDArray[np.int8], I32, I32]] = field(default_factory=list)
    _device: list[tuple[I32, I32, F64]] = field(default_factory=list)
    _pinned: list[I64 | I32] = field(default_factory=list)
    _stops: list[tuple[I32, I64, I64, I64]] = field(default_factory=list)
    _pieces: Scratch = field(default_factory=Scratch)
    """Apart from the graph, so that its files go with it."""

    def nodes(self, time: ArrayLike, rise: int, *, fixed: ArrayLike = False) -> I64:
        """Add nodes and return their provisional numbers. ``time`` is in ns; ``rise`` orders nodes of equal time."""
        times = np.atleast_1d(np.asarray(time, np.float64))
        size = len(times)
        same, constant = np.broadcast_to(np.int8(rise), size), np.broadcast_to(np.asarray(fixed, np.bool_), size)
        self._nodes.append((self._pieces.keep(times), same, constant))
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

        def column(values: ArrayLike, kind: type) -> NDArray[Any]:
            array: NDArray[Any] = np.asarray(values, kind)
            return self._pieces.keep(array) if array.shape == (size,) else np.broadcast_to(array, size)

        self.ranks = max(self.ranks, int(np.max(owner, initial=-1)) + 1)
        self._edges.append(
            (
                column(target, np.int32),
                column(source, np.int32),
                column(base, np.float64),
                column(work, np.float64),
                column(label, np.int8),
                column(owner, np.int32),
                column(segment, np.int32),
            )
        )

    def device(self, owner: int, segment: I64, ns: F64) -> None:
        """Add pieces of device work."""
        self._device.append((np.full(len(ns), owner, np.int32), segment.astype(np.int32), ns))

    def stops(self, owner: int, event: I64, asked: I64, done: I64) -> None:
        """Add calls in which a host waits for its device."""
        self._stops.append((np.full(len(event), owner, np.int32), event, asked, done))

    def finish(self, ends: I64, starts: I64 = NOTHING, member: NDArray[np.integer[Any]] = NOTHING) -> Graph:
        """Sort the nodes by time, drop edges that point backwards, and renumber the nodes.

        Args:
            ends: nodes at which the members of the matched calls end.
            starts: nodes at which these members start.
            member: columns of these members.
        """
        graph = Scratch()
        time, rise, pinned = (np.concatenate(c) for c in zip(*self._nodes, strict=True))
        self._nodes.clear()
        for nodes in self._pinned:
            pinned[nodes] = True
        columns = [list(column) for column in zip(*self._edges, strict=True)]
        self._edges.clear()
        # Each column is put together and its pieces are freed at once: here an analysis needs most memory.
        target, source = np.concatenate(columns.pop(0)), np.concatenate(columns.pop(0))
        count = len(target)
        order = _sorted(time, _depth(time, rise, source, target), rise)
        place = _inverse(order)
        recorded, pinned = time[order], pinned[order]
        del time, rise, order
        target = place[target]
        source = place[source]
        backward = source >= target
        if backward.any():
            forward = np.flatnonzero(~backward).astype(np.int32)
            target, source = target[forward], source[forward]
            kept = forward[by_target := _by_target(target)]
            source = source[by_target]
            del forward, by_target
        else:
            kept = _by_target(target)
            source = source[kept]
        into = np.bincount(target, minlength=len(place)).astype(np.int32)
        del target, backward
        bounds: list[int] | None = None
        first = _begins(into)
        if self.ranks <= WIDE:
            recorded, source = graph.keep(recorded), graph.keep(source)
        else:
            level = level_of(first, source, pinned, self.ranks)
            bounds = np.cumsum(np.concatenate(([0], np.bincount(level)))).tolist()
            narrow = level.astype(np.uint16) if len(bounds) < 1 << 16 else level  # sorted by radix
            order = np.argsort(narrow, kind="stable").astype(np.int32)
            del level, narrow
            blocks = [order[begin : begin + AT_ONCE] for begin in range(0, len(order), AT_ONCE)]
            moved, old = _inverse(order), source
            kept = self._pieces.joined(len(kept), np.int32, (kept[ranges(first[b], into[b])] for b in blocks))
            source = graph.joined(len(kept), np.int32, (moved[old[ranges(first[b], into[b])]] for b in blocks))
            place, pinned, first = moved[place], pinned[order], _begins(into[order])
            recorded = graph.joined(len(order), np.float64, (recorded[b] for b in blocks))
            del old, order, moved, blocks
        starting = graph.keep(first.astype(np.int64))
        del into, first

        def column() -> NDArray[Any]:
            """Return the next column, for the edges that are kept, in their order."""
            pieces = columns.pop(0)
            # In memory: a file that is read everywhere at once is mapped again after each release of its pages.
            whole = np.concatenate(pieces)
            pieces.clear()
            blocks = (kept[begin : begin + AT_ONCE] for begin in range(0, len(kept), AT_ONCE))
            return graph.joined(len(kept), whole.dtype, (whole[block] for block in blocks))

        device = [np.concatenate(c) for c in zip(*self._device, strict=True)]
        nowhere = (np.empty(0, np.int32), *(np.empty(0, np.int64) for _ in range(3)))
        owners, events, asked, done = (np.concatenate(c) for c in zip(nowhere, *self._stops, strict=True))
        return Graph(
            recorded=recorded,
            fixed=graph.keep(pinned),
            first=starting,
            source=source,
            base=column(),
            work=column(),
            label=column(),
            owner=column(),
            segment=column(),
            device_owner=graph.keep(device[0]) if device else np.empty(0, np.int32),
            device_segment=graph.keep(device[1]) if device else np.empty(0, np.int32),
            device_work=graph.keep(device[2]) if device else np.empty(0),
            ends=graph.keep(place[ends]),
            starts=graph.keep(place[starts]),
            member=graph.keep(member.astype(np.int32)),
            stops=Stops(owners, events, place[asked], place[done]),
            residual_ns=self.residual,
            dropped=count - len(kept),
            levels=None if bounds is None else Levels(starting, source, bounds),
        )
