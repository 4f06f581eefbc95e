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
    stack: list[tuple[int, int]] = []
    last = None
    columns = (order, start[order], (start + duration)[order], thread[order])
    for row, begin, end, tid in zip(*(column.tolist() for column in columns), strict=True):
        if tid != last:
            stack, last = [], tid
        while stack and stack[-1][1] <= begin:
            stack.pop()
        if stack:
            own[stack[-1][0]] -= min(end, stack[-1][1]) - begin
        stack.append((row, end))
    return np.maximum(own, 0.0)
