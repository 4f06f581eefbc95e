"""The highest value of a quantity in each of several intervals, given its changes (allocated memory)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["peaks"]

I64 = NDArray[np.int64]


def peaks(times: I64, levels: I64, starts: I64, ends: I64) -> list[int]:
    """Return the highest level in each interval [start, end), including the level at its start.

    Args:
        times: when the level changed, ascending, shape (N,).
        levels: the level before the first change, then that after each change, shape (N + 1,).
        starts: begin of each interval, shape (M,), on the clock of ``times``.
        ends: end of each interval, shape (M,).
    """
    first, last = np.searchsorted(times, starts), np.searchsorted(times, ends)
    return [int(levels[a : b + 1].max()) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
