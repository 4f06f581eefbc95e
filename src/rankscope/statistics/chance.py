"""How likely a result is by chance: used by the analysis and the diagnosis to decide about ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

__all__ = ["DEPENDENCE", "discoveries", "simes", "student_quantile", "student_tail"]

DEPENDENCE = 3.0
"""Variance of the mean of successive steps over that of independent ones: (1 + a) / (1 - a). The autocorrelation a of
kernel times and step times was measured to be 0.3 to 0.5."""
_LIKE_NORMAL = 200
"""Degrees of freedom from which on Student's distribution is the normal one to three digits."""
_PIECES = 200
_SIMPSON = np.array([1.0, *[4.0, 2.0] * (_PIECES // 2 - 1), 4.0, 1.0])


def discoveries(chances: Sequence[float], level: float) -> list[bool]:
    """Which of many tests found something, so that of those found a share of ``level`` at most is by chance.

    Benjamini and Hochberg, 1995: the largest k for which the k-th smallest probability is at most k / n of the level.

    Args:
        chances: of each test the probability that chance alone would show as much.
        level: the share that may be wrong.
    """
    ordered = sorted(chances)
    bound = max((p for k, p in enumerate(ordered, start=1) if p <= level * k / len(ordered)), default=-1.0)
    return [p <= bound for p in chances]


def simes(chances: Sequence[float]) -> float:
    """Of tests of one question in several places, the chance that no place shows as much as some do.

    Simes, 1986: the smallest n / k times the k-th smallest. One place that is far off is seen, and all that are off a
    little, with one formula; places that go together do no harm.
    """
    ordered = sorted(chances)
    return min((len(ordered) / k * p for k, p in enumerate(ordered, start=1)), default=1.0)


def student_tail(t: float, freedom: int) -> float:
    """Return P(T > t) of Student's distribution.

    With t = sqrt(n) tan(a) the density becomes cos(a)^(n - 1), which Simpson's rule integrates.
    """
    if freedom > _LIKE_NORMAL:
        return math.erfc(t / math.sqrt(2.0)) / 2
    angle, quarter = math.atan(t / math.sqrt(freedom)), math.pi / 2

    def area(begin: float) -> float:
        width = (quarter - begin) / _PIECES
        heights = np.maximum(np.cos(begin + width * np.arange(_PIECES + 1)), 0.0) ** (freedom - 1)
        return float(_SIMPSON @ heights) * width / 3

    tail = area(abs(angle)) / (2 * area(0.0))
    return tail if t >= 0 else 1.0 - tail


@lru_cache(maxsize=1024)  # bisection takes 48 integrals; ranks ask for the same few
def student_quantile(tail: float, freedom: int) -> float:
    """Return the t with P(T > t) = ``tail`` (0 < tail <= 0.5) of Student's distribution, by bisection."""
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > tail:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > tail else (low, middle)
    return high
