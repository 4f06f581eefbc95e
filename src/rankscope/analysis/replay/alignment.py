"""Align two ranks' sequences of calls where records were lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOWHERE", "places_in"]

I64 = NDArray[np.int64]

NOWHERE = -(2**62)
"""Position of a call of which the other rank has no record."""

MIN_OVERLAP = 0.5
"""Least share of the shorter window that two ranks must have in common to be compared."""

MOST_LOST = 256
"""Largest number of lost records at which two ranks are compared, because the time to align grows with it."""


def places_in(head: I64, own: I64, later: int, lost_by_head: int, lost_by_own: int) -> I64 | None:
    """Find the positions of one rank's calls in the sequence of another.

    Args:
        head: calls of the other rank, as integers.
        own: calls of the rank, as integers.
        later: position of the rank's first call in ``head`` if no records were lost; may be negative.
        lost_by_head: number of records that the other rank is known to have lost.
        lost_by_own: number of records that the rank is known to have lost.

    Returns:
        A position for each call of ``own``, ascending; :data:`NOWHERE` for a call that the other rank lost; positions
        before 0 and beyond the end where its window is longer. None where the two do not make the same calls.
    """
    if _agree(head, own, later):
        return later + np.arange(len(own))
    width = lost_by_head + lost_by_own
    if not 0 < width <= MOST_LOST:
        return None
    a, b = _common(head, own, later, width)
    if len(a) < MIN_OVERLAP * min(len(head), len(own)) or not len(a):
        return None
    if a[-1] - a[0] + 1 - len(a) > lost_by_own or b[-1] - b[0] + 1 - len(b) > lost_by_head:
        return None
    if min(a[0], b[0]) > width or min(len(head) - 1 - a[-1], len(own) - 1 - b[-1]) > width:
        return None
    places = np.full(len(own), NOWHERE, np.int64)
    places[b] = a
    places[: b[0]] = a[0] - np.arange(b[0], 0, -1)
    places[b[-1] + 1 :] = a[-1] + np.arange(1, len(own) - b[-1])
    return places


def _agree(a: I64, b: I64, later: int) -> bool:
    """Whether two sequences agree where they overlap, with ``b`` beginning ``later`` positions after ``a``."""
    if later < 0:
        a, b, later = b, a, -later
    count = min(len(a) - later, len(b))
    return count >= MIN_OVERLAP * min(len(a), len(b)) and bool((a[later : later + count] == b[:count]).all())


def _common(head: I64, own: I64, later: int, width: int) -> tuple[I64, I64]:
    """Longest common subsequence in which each pair is within ``width`` positions of ``later``."""
    band = np.arange(-width, width + 1)
    table = np.zeros((len(own) + 1, len(band)), np.int32)
    padded = np.append(head, np.iinfo(np.int64).min)
    for row, call in enumerate(own.tolist()):
        at = row + later + band
        same = padded[np.where((at >= 0) & (at < len(head)), at, len(head))] == call
        # Either both calls form a pair, or this call is left out (the band moves on by one), or one of ``head`` is.
        reached = table[row] + same
        reached[:-1] = np.maximum(reached[:-1], table[row, 1:])
        table[row + 1] = np.maximum.accumulate(reached)
    a: list[int] = []
    b: list[int] = []
    row, column = len(own), len(band) - 1
    while row > 0 and column >= 0:
        here = table[row, column]
        if column > 0 and table[row, column - 1] == here:
            column -= 1
        elif column + 1 < len(band) and table[row - 1, column + 1] == here:
            row, column = row - 1, column + 1
        elif table[row - 1, column] == here:
            row -= 1  # outside of the band: left out
        else:
            row -= 1
            a.append(row + later + int(band[column]))
            b.append(row)
    return np.array(a[::-1], np.int64), np.array(b[::-1], np.int64)
