"""Longest paths through a graph of points in time: the earliest time at which each node can happen.

Two methods give the same numbers. Node by node is fastest where most nodes depend on the previous one. With many ranks,
nodes that depend only on earlier *levels* are computed together (64 ranks: 90 nodes a level, eight times as fast).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.statistics.grouping import ranges

__all__ = ["Changed", "Levels", "by_node", "level_of"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

EDGES_AT_ONCE = 1 << 17
"""Number of edges whose weights are computed at a time, so that they stay in the cache."""
NODES_AT_ONCE = 4
"""Number of nodes of each rank whose levels are computed at a time: few, so that most do not depend on each other."""
LEAST_AT_ONCE = 512


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


@dataclass(frozen=True, slots=True)
class Changed:
    """Work that is as recorded but for some edges. A copy for all edges would be the largest array of a replay."""

    edges: I32
    """In ascending order, each once."""
    work: F64
    """Work of these edges, in ns."""

    def between(self, low: int, high: int) -> tuple[I32, F64]:
        """Return the edges from ``low`` to before ``high``, and their work."""
        first, end = np.searchsorted(self.edges, np.array([low, high], self.edges.dtype))
        return self.edges[first:end], self.work[first:end]

    def of_all(self, work: F64) -> F64:
        """Return the work of all edges, given the recorded one."""
        whole: F64 = work.copy()
        whole[self.edges] = self.work
        return whole


@dataclass(slots=True)
class Levels:
    """A graph whose nodes are sorted by level, and the edges by their targets; the times of level 0 are known."""

    first: I64
    source: I32
    bounds: list[int]
    """The first node of each level, and the number of nodes."""

    def run(self, base: F64, work: F64, known: F64, changed: Changed | None = None) -> F64:
        """Compute the times of all nodes, in ns; the weight of an edge is ``base + work``, with what is ``changed``."""
        at: F64 = known.copy()
        source, latest = self.source, np.maximum.reduceat
        ends = self.first[self.bounds].tolist()
        weight, until, origin = np.empty(0), 0, 0
        for level in range(1, len(ends) - 1):
            here, end, low, high = self.bounds[level], self.bounds[level + 1], ends[level], ends[level + 1]
            if high > until:
                origin, until = low, max(high, min(low + EDGES_AT_ONCE, ends[-1]))
                weight = base[origin:until] + work[origin:until]
                if changed is not None:
                    edges, values = changed.between(origin, until)
                    weight[edges - origin] = base[edges] + values
            reached = at.take(source[low:high])
            reached += weight[low - origin : high - origin]
            if high - low == end - here:
                at[here:end] = reached
            else:
                latest(reached, self.first[here:end] - low, out=at[here:end])
        return at


def level_of(first: NDArray[np.integer[Any]], source: I32, fixed: NDArray[np.bool_], ranks: int) -> I32:
    """Return the level of each node: one more than the highest level among its sources, 0 for nodes of known time.

    The other arguments are those of :func:`by_node`. The levels of some nodes are computed together from those of
    earlier nodes, and then raised along the edges between these nodes, until none is too low.
    """
    level = np.zeros(len(fixed), np.int32)
    at_once = max(NODES_AT_ONCE * ranks, LEAST_AT_ONCE)
    for begin in range(0, len(fixed), at_once):
        begins = first[begin : begin + at_once + 1]
        nodes = np.flatnonzero((begins[1:] > begins[:-1]) & ~fixed[begin : begin + at_once])
        if not len(nodes):
            continue
        count = begins[nodes + 1] - begins[nodes]
        sources = source[ranges(begins[nodes], count)]
        nodes += begin
        level[nodes] = np.maximum.reduceat(level[sources], np.cumsum(count) - count) + 1
        inner = np.flatnonzero(sources >= begin)
        sources, targets = sources[inner], np.repeat(nodes, count)[inner]
        while True:
            higher = level[sources] + 1
            low = higher > level[targets]
            if not low.any():
                break
            np.maximum.at(level, targets[low], higher[low])
    return level
