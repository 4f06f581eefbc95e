"""Sets of half-open time intervals as two int64 arrays (starts, ends), in any one unit. All functions are pure.

A *set* here is sorted and disjoint, with touching intervals joined; :func:`union` makes one from any intervals.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["EMPTY", "Spans", "clip", "complement", "contains", "cover", "intersect", "measure", "subtract", "union"]

I64 = NDArray[np.int64]
Spans: TypeAlias = tuple[I64, I64]

EMPTY: Spans = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: I64, ends: I64) -> Spans:
    """Join any intervals into a set. Empty and negative ones are dropped."""
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return EMPTY
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    ends = np.maximum.accumulate(ends)
    first = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return starts[first].astype(np.int64), ends[last].astype(np.int64)


def measure(spans: Spans) -> int:
    """Return the total duration of a set."""
    return int((spans[1] - spans[0]).sum())


def intersect(a: Spans, b: Spans) -> Spans:
    """Return the intersection of two sets."""
    if not len(a[0]) or not len(b[0]):
        return EMPTY
    edges = np.concatenate((a[0], a[1], b[0], b[1]))
    change = np.repeat(np.array([1, -1, 1, -1], np.int64), [len(a[0]), len(a[1]), len(b[0]), len(b[1])])
    order = np.argsort(edges, kind="stable")
    edges, depth = edges[order], np.cumsum(change[order])
    both = (depth[:-1] == 2) & (edges[1:] > edges[:-1])
    return union(edges[:-1][both], edges[1:][both])


def complement(spans: Spans, start: int, end: int) -> Spans:
    """Return the part of [start, end) that is not in the set."""
    starts, ends = clip(spans, start, end)
    return union(np.concatenate(([start], ends)).astype(np.int64), np.concatenate((starts, [end])).astype(np.int64))


def subtract(a: Spans, b: Spans) -> Spans:
    """Return the part of set ``a`` outside set ``b``."""
    if not len(a[0]) or not len(b[0]):
        return a
    return intersect(a, complement(b, int(a[0][0]), int(a[1][-1])))


def clip(spans: Spans, start: int, end: int) -> Spans:
    """Return the part of the set within [start, end)."""
    starts, ends = np.maximum(spans[0], start), np.minimum(spans[1], end)
    keep = ends > starts
    return starts[keep], ends[keep]


def contains(spans: Spans, times: I64) -> NDArray[np.bool_]:
    """Return for each time whether the set contains it."""
    if not len(spans[0]):
        return np.zeros(len(times), np.bool_)
    at = np.searchsorted(spans[0], times, side="right") - 1
    return np.asarray((at >= 0) & (times < spans[1][at.clip(0)]))


def cover(spans: Spans, starts: I64, ends: I64) -> I64:
    """Return for each interval [start, end) how much of it the set covers."""
    if not len(spans[0]):
        return np.zeros(len(starts), np.int64)
    before = np.concatenate(([0], np.cumsum(spans[1] - spans[0])))

    def filled(times: I64) -> I64:
        at = np.searchsorted(spans[0], times, side="right") - 1
        inside = np.minimum(times, spans[1][at.clip(0)]) - spans[0][at.clip(0)]
        return np.where(at >= 0, before[at.clip(0)] + inside, 0).astype(np.int64)

    return filled(np.maximum(ends, starts)) - filled(starts)
