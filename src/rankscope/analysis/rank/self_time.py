"""Self time of calls: their duration without that of the calls they make."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["self_time"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def self_time(thread: I64, start: I64, duration: I64) -> F64:
    """Return the self time of each call, ns. A call is made by the call of its thread in which it begins."""
    own = duration.astype(np.float64)
    order = np.lexsort((-duration, start, thread))
    begin, end = start[order], (start + duration)[order]
    caller = _callers(begin, end, thread[order])
    made = np.flatnonzero(caller >= 0)
    inside = np.minimum(end[made], end[caller[made]]) - begin[made]
    own[order] -= np.bincount(caller[made], inside, len(order))
    return np.maximum(own, 0.0)


def _callers(begin: I64, end: I64, thread: I64) -> I64:
    """Return for each call the last one before it that is still open when it begins; -1 if there is none.

    All candidates are moved back at once, each to the candidate of its own: those between have ended even earlier. So
    the rounds grow with the logarithm of the calls.

    Args:
        begin: of the calls, in the order of thread and begin.
        end: of them.
        thread: of them.
    """
    caller = np.arange(len(begin), dtype=np.int64) - 1
    caller[np.flatnonzero(np.diff(thread)) + 1] = -1
    open_ = np.flatnonzero(caller >= 0)
    while len(open_):
        open_ = open_[end[caller[open_]] <= begin[open_]]
        caller[open_] = caller[caller[open_]]
        open_ = open_[caller[open_] >= 0]
    return caller
