"""How likely a result is by chance: used by the analysis and the diagnosis to decide about ranks."""

from __future__ import annotations

import math

__all__ = ["student_tail"]

_LIKE_NORMAL = 200
"""Degrees of freedom from which on Student's distribution is the normal one to three digits."""


def student_tail(t: float, freedom: int) -> float:
    """Return P(T > t) of Student's distribution.

    With t = sqrt(n) tan(a) the density becomes cos(a)^(n - 1), which Simpson's rule integrates.
    """
    if freedom > _LIKE_NORMAL:
        return math.erfc(t / math.sqrt(2.0)) / 2
    angle, quarter, pieces = math.atan(t / math.sqrt(freedom)), math.pi / 2, 200

    def area(begin: float) -> float:
        width = (quarter - begin) / pieces
        weights = (1 if i in (0, pieces) else 4 if i % 2 else 2 for i in range(pieces + 1))
        heights = (max(math.cos(begin + i * width), 0.0) ** (freedom - 1) for i in range(pieces + 1))
        return sum(w * h for w, h in zip(weights, heights, strict=True)) * width / 3

    tail = area(abs(angle)) / (2 * area(0.0))
    return tail if t >= 0 else 1.0 - tail
