"""Sets of half-open time intervals as two int64 arrays (starts, ends), in any one unit. All functions are pure.

A *set* here is sorted and disjoint, with touching intervals joined; :func:`union` makes one from any intervals.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EMPTY",
    "Spans",
    "clip",
    "complement",
    "contains",
    "cover",
    "cover_between",
    "intersect",
    "measure",
    "subtract",
    "union",
]

I64 = NDArray[np.int64]
Spans: TypeAlias = tuple[I64, I64]

EMPTY: Spans = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: I64, ends: I64) -> Spans:
    """Join any intervals into a set. Empty and negative ones are dropped."""
    keep = ends > starts
    if not keep.all():
        starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return EMPTY
    if not (starts[1:] > ends[:-1]).all():  # else it is a set, as the work of one stream is
        if (starts[1:] < starts[:-1]).any():
            order = np.argsort(starts, kind="stable")
            starts, ends = starts[order], ends[order]
        ends = np.maximum.accumulate(ends)
        apart = np.flatnonzero(starts[1:] > ends[:-1])
        starts, ends = starts[np.append(0, apart + 1)], ends[np.append(apart, len(ends) - 1)]
    return starts.astype(np.int64), ends.astype(np.int64)


def measure(spans: Spans) -> int:
    """Return the total duration of a set."""
    return int((spans[1] - spans[0]).sum())


def intersect(a: Spans, b: Spans) -> Spans:
    """Return the intersection of two sets."""
    if len(a[0]) > len(b[0]):
        a, b = b, a
    if not len(a[0]):
        return EMPTY
    # those of b from ``first`` on overlap an interval of a, as many as ``count``
    first = np.searchsorted(b[1], a[0], side="right")
    count = np.searchsorted(b[0], a[1]) - first
    mine = np.repeat(np.arange(len(count)), count)
    other = np.arange(len(mine)) + np.repeat(first - np.cumsum(count) + count, count)
    return np.maximum(a[0][mine], b[0][other]), np.minimum(a[1][mine], b[1][other])


def complement(spans: Spans, start: int, end: int) -> Spans:
    """Return the part of [start, end) that is not in the set."""
    starts, ends = clip(spans, start, end)
    starts, ends = np.concatenate(([start], ends)), np.concatenate((starts, [end]))
    keep = ends > starts
    return starts[keep], ends[keep]


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
    return _until(spans, np.maximum(ends, starts)) - _until(spans, starts)


def cover_between(spans: Spans, bounds: I64) -> I64:
    """Return for each interval from one of the ascending bounds to the next how much of it the set covers."""
    return np.diff(_until(spans, bounds))


def _until(spans: Spans, times: I64) -> I64:
    """Return how much of the set lies before each of the times."""
    starts, ends = spans
    if not len(starts) or not len(times):
        return np.zeros(len(times), np.int64)
    begun = np.searchsorted(starts, times, side="right")
    before = np.concatenate(([0], np.cumsum(ends - starts)))
    latest = np.concatenate(([times.min()], ends))
    return before[begun] - np.maximum(latest[begun] - times, 0)
