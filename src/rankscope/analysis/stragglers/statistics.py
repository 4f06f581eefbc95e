"""Statistical tests that decide about ranks. Successive steps are correlated, and many ranks are tested at once."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rankscope.statistics import chance
from rankscope.statistics.chance import DEPENDENCE, student_quantile, student_tail

__all__ = [
    "CONFIDENCE",
    "FALSE",
    "above",
    "confidence",
    "discoveries",
    "mean_error",
    "normal_tail",
    "robust_scatter",
    "smallest_visible",
]

F64 = NDArray[np.float64]

CONFIDENCE = 1.96
"""Half width of a 95 % interval, in standard errors that many values determine. Of steps see :func:`confidence`."""
OUTSIDE = 0.05
"""Share of the intervals that may miss the truth."""
SURE = 0.95
"""Probability with which a difference called visible is detected."""
FALSE = 0.01
"""Largest share of false discoveries among the candidates."""


def mean_error(values: F64) -> float:
    """Standard error of the mean of successive steps; infinite for fewer than two."""
    return float(np.std(values, ddof=1)) * math.sqrt(DEPENDENCE / len(values)) if len(values) > 1 else math.inf


def confidence(steps: int) -> float:
    """Return the half width of a 95 % confidence interval of the mean over so many steps, in standard errors.

    It is Student's quantile. Bootstraps over blocks of six autocorrelated steps hold the truth in half of the cases
    (``benchmarks/intervals.py``).
    """
    return student_quantile(OUTSIDE / 2, steps - 1) if steps > 1 else math.inf


def normal_tail(z: F64) -> F64:
    """P(Z > z) of the normal distribution."""
    return np.array([0.5 * math.erfc(v / math.sqrt(2.0)) for v in np.ravel(z).tolist()]).reshape(np.shape(z))


def robust_scatter(values: F64) -> float:
    """Standard deviation of the bulk of the values, by their median absolute deviation; NaN without values."""
    real = values[~np.isnan(values)]
    return float(1.4826 * np.median(np.abs(real - np.median(real)))) if len(real) else math.nan


def discoveries(p: F64, rate: float) -> NDArray[np.bool_]:
    """Reject null hypotheses by p-values (NaN: not tested) such that at most ``rate`` of the rejections is false."""
    flat = np.where(np.isnan(p), 1.0, p).ravel().tolist()
    return np.array(chance.discoveries(flat, rate), np.bool_).reshape(np.shape(p))


def above(values: F64) -> tuple[NDArray[np.bool_], F64, F64]:
    """Test which rows are above 0, given the scatter of their columns (NaN: unknown).

    Returns:
        A mask of these rows, the mean of each row and its standard error; each of shape (rows,).
    """
    known = [own[~np.isnan(own)] for own in values]
    mean = np.array([float(own.mean()) if len(own) else 0.0 for own in known])
    error = np.array([mean_error(own) for own in known])
    t = np.divide(mean, error, out=np.where(mean > 0, np.inf, -np.inf), where=error > 0)
    p = np.array([_tail(float(value), len(own)) for value, own in zip(t, known, strict=True)])
    return discoveries(p, FALSE) & (mean > 0), mean, error


def smallest_visible(values: F64) -> float:
    """How far above 0 the mean of a row must be for :func:`above` to detect it with probability :data:`SURE`.

    It is that of the row in which it is largest; infinite where a row has fewer than two values.
    """
    known = [own[~np.isnan(own)] for own in values]
    if not known or min(map(len, known)) < 2:
        return math.inf
    alone = FALSE / len(known)  # threshold of the smallest of many p-values
    return max(
        mean_error(own) * (student_quantile(alone, len(own) - 1) + student_quantile(1.0 - SURE, len(own) - 1))
        for own in known
    )


def _tail(t: float, steps: int) -> float:
    if steps < 2:
        return 1.0
    return student_tail(t, steps - 1) if np.isfinite(t) else float(t < 0)
