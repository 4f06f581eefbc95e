"""Longest paths through a graph of points in time: the earliest time at which each node can happen.

Two methods give the same numbers. Node by node is fastest where most nodes depend on the previous one. With many ranks,
nodes that depend only on earlier *levels* are computed together (64 ranks: 90 nodes a level, eight times as fast).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.scratch import Scratch

__all__ = ["Levels", "by_node"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

AT_ONCE = 1 << 16
"""Number of nodes converted to Python integers at a time, since these need several times the memory."""
EDGES_AT_ONCE = 1 << 20
"""Number of edges whose weights are computed at a time."""


def by_node(first: I64, source: I32, weight: F64, known: F64, fixed: NDArray[np.bool_]) -> F64:
    """Compute the times of all nodes one by one.

    Args:
        first: edges of node i are ``first[i]:first[i + 1]``, shape (nodes + 1,); every edge points forward.
        source: source node of each edge.
        weight: weight of each edge, in ns.
        known: time of each node, in ns, kept by fixed nodes and nodes without edges.
        fixed: nodes whose time is kept.
    """
    weights, sources, firsts = weight.tolist(), source.tolist(), first.tolist()
    at = known.tolist()
    for node in np.flatnonzero(~fixed & (np.diff(first) > 0)).tolist():
        low, high = firsts[node], firsts[node + 1]
        best = at[sources[low]] + weights[low]
        for edge in range(low + 1, high):
            other = at[sources[edge]] + weights[edge]
            if other > best:
                best = other
        at[node] = best
    return np.array(at)


@dataclass(slots=True)
class Levels:
    """Nodes sorted by level; the times of level 0 are known."""

    order: I32
    edge: I32
    """Edges, sorted by their targets in ``order``; those into level 0 are left out."""
    blocks: list[tuple[int, int, list[tuple[int, int, int, int, I32, I64 | None]]]]
    """Levels but the first, in blocks of about :data:`EDGES_AT_ONCE` edges: where the edges of the block begin and end
    in ``edge``, and for each level where its nodes begin and end in ``order``; its edges, counted within the block;
    their sources, as indices into ``order``; the first edge of each node, counted within the level, or None where each
    has one."""

    @classmethod
    def of(cls, first: I64, source: I32, fixed: NDArray[np.bool_]) -> Levels:
        """Sort the nodes of a graph by level; the arguments are those of :func:`by_node`."""
        count = np.where(fixed, 0, np.diff(first))
        level = _levels(first, source, count)
        small = level.astype(np.uint16) if level.max(initial=0) < 1 << 16 else level  # sorted by radix
        order = np.argsort(small, kind="stable").astype(np.int32)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        bounds = np.cumsum(np.concatenate(([0], np.bincount(level)))).tolist()
        del level, small
        skipped = bounds[1] if len(bounds) > 1 else 0
        begins = np.concatenate(([0], np.cumsum(count[order[skipped:]])))
        ends = begins[np.array(bounds[1:], np.int64) - skipped].tolist()
        scratch = Scratch()
        edge, sources = scratch.empty(int(begins[-1]), np.int32), scratch.empty(int(begins[-1]), np.int32)
        blocks = []
        begun = 0
        while begun < len(ends) - 1:
            last, base = begun + 1, ends[begun]
            while last < len(ends) - 1 and ends[last + 1] - base <= EDGES_AT_ONCE:
                last += 1
            nodes = order[bounds[begun + 1] : bounds[last + 1]]
            edge[base : ends[last]] = _ranges(first[nodes], count[nodes])
            sources[base : ends[last]] = place[source[edge[base : ends[last]]]]
            steps = list[tuple[int, int, int, int, I32, I64 | None]]()
            for n in range(begun, last):
                here, end, low, high = bounds[n + 1], bounds[n + 2], ends[n], ends[n + 1]
                several = begins[here - skipped : end - skipped] - low if high - low > end - here else None
                steps.append((here, end, low - base, high - base, sources[low:high], several))
            blocks.append((base, ends[last], steps))
            begun = last
        return cls(scratch.keep(order), edge, blocks)

    def run(self, base: F64, work: F64, known: F64) -> F64:
        """Compute the times of all nodes, in ns; the weight of an edge is ``base + work``."""
        at = known[self.order]
        latest = np.maximum.reduceat
        for first, last, steps in self.blocks:
            edges = self.edge[first:last]
            weight = base[edges]
            weight += work[edges]
            for here, end, low, high, sources, begins in steps:
                reached = at[sources]
                reached += weight[low:high]
                if begins is None:
                    at[here:end] = reached
                else:
                    latest(reached, begins, out=at[here:end])
        out = np.empty(len(at))
        out[self.order] = at
        return out


def _levels(first: I64, source: I32, count: I64) -> NDArray[np.int32]:
    """Return the level of each node: one more than the highest level among its sources, 0 without edges.

    ``count`` is the number of a node's edges, or 0 where they do not count.
    """
    level = array("i", bytes(4 * len(count)))
    for begin in range(0, len(count), AT_ONCE):
        own, edges = count[begin : begin + AT_ONCE], np.diff(first[begin : begin + AT_ONCE + 1])
        sources = source[int(first[begin]) : int(first[begin + len(own)])][np.repeat(own == edges, edges)]
        following = iter(sources.tolist()).__next__
        for node, many in enumerate(own.tolist(), begin):
            if many == 1:
                level[node] = level[following()] + 1
            elif many:
                highest = 0
                for _ in range(many):
                    before = level[following()]
                    if before > highest:
                        highest = before
                level[node] = highest + 1
    return np.frombuffer(level, np.int32)


def _ranges(start: I64, count: I64) -> I64:
    """Concatenate ``start[i] ... start[i] + count[i] - 1`` over all i."""
    ends = np.cumsum(count)
    return np.repeat(start - ends + count, count) + np.arange(ends[-1] if len(ends) else 0)
