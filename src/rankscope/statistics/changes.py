"""Where a series of numbers changes for good: step times over the runs of a job, or over the steps of one run.

The library ruptures proposes where (its optimal segmentation, with a low penalty, of the ranks of the numbers, so that
a single outlier moves nothing). A proposal stays only if a test confirms it and it is large enough. The test asks how
often the same numbers in another order show such a change anywhere, and takes into account that neighbours depend on
each other, so that slow waves are not taken for changes. benchmarks/changes.py has how often it is wrong, beside other
ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.errors import AnalysisError

__all__ = ["FEWEST", "Change", "changes"]

F64 = NDArray[np.float64]

FEWEST = 8
"""Of a shorter series no change is told: two parts of four numbers are in order by chance once in 35 times."""
LEAST_PART = 3
"""Numbers on either side: of fewer the median is any one of them."""
ALPHA = 0.01
"""How likely a change that is told may be by chance, for the whole stretch in which it was looked for."""
SHUFFLES = 999
MOST = 2_000
"""A longer series is averaged down to so many numbers: the segmentation takes the square of its length."""


@dataclass(frozen=True, slots=True)
class Change:
    """The series is at another level from ``index`` on."""

    index: int
    """Place in the series as it was given of the first number after the change."""
    before: float
    """Median from the change before (or the beginning) to this one."""
    after: float
    """Median from here to the next change, or the end."""
    p_value: float

    @property
    def relative(self) -> float:
        """By what share of ``before`` it is higher."""
        return (self.after - self.before) / abs(self.before) if self.before else float(np.sign(self.after))


def changes(values: Sequence[float] | F64, *, least: float = 0.03, alpha: float = ALPHA, seed: int = 0) -> list[Change]:
    """Find where a series changes its level and keeps to it, in order.

    Args:
        values: in order of time, in any unit. What is not finite is left out.
        least: the smallest relative change of the median that is told.
        alpha: the largest p-value.
        seed: of the shuffles: the same series gets the same answer.

    Raises:
        AnalysisError: ruptures is not installed.
    """
    given = np.asarray(values, np.float64)
    kept = np.flatnonzero(np.isfinite(given))
    if len(kept) < FEWEST:
        return []
    width = -(-len(kept) // MOST)
    starts = np.arange(0, len(kept), width)
    series = np.add.reduceat(given[kept], starts) / np.diff(np.append(starts, len(kept)))
    cuts, random = _proposed(_ranks(series)), np.random.default_rng(seed)
    while cuts:
        bounds = [0, *cuts, len(series)]
        found = [Change(int(kept[starts[cut]]), *_levels(series, bounds, n), 1.0) for n, cut in enumerate(cuts)]
        small = [(abs(change.relative), n) for n, change in enumerate(found)]
        if min(small)[0] < least:
            del cuts[min(small)[1]]  # and ask again: the parts beside it are one now
            continue
        inflation = _inflation(series, bounds)
        parts = [series[begin:end] for begin, end in zip(bounds[:-2], bounds[2:], strict=True)]
        found = [replace(c, p_value=_chance(p, inflation, random)) for c, p in zip(found, parts, strict=True)]
        unsure = [(change.p_value, n) for n, change in enumerate(found)]
        if max(unsure)[0] <= alpha:
            return found
        del cuts[max(unsure)[1]]
    return []


def _proposed(ranks: F64) -> list[int]:
    """Places of the optimal segmentation, rather too many."""
    rpt = _ruptures()
    size = len(ranks)
    noise = (
        float(np.median(np.abs(np.diff(ranks)))) / 0.954
    )  # of two normal numbers' difference, in standard deviations
    penalty = 2.0 * max(noise, 1.0) ** 2 * np.log(size)
    model = rpt.KernelCPD(kernel="linear", min_size=LEAST_PART).fit(ranks.reshape(-1, 1))
    return [int(cut) for cut in model.predict(pen=penalty)[:-1]]


def _ruptures() -> Any:
    try:
        import ruptures
    except ImportError as error:
        raise AnalysisError(
            "finding changes in a history takes the package ruptures; pip install 'rankscope[history]'"
        ) from error
    return ruptures


def _ranks(values: F64) -> F64:
    """Place of each number in their order; equal ones get the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[inverse.reshape(-1)], np.float64)


def _levels(series: F64, bounds: list[int], place: int) -> tuple[float, float]:
    before, here, after = bounds[place : place + 3]
    return float(np.median(series[before:here])), float(np.median(series[here:after]))


def _inflation(series: F64, bounds: list[int]) -> float:
    """By how much dependent neighbours spread means more than independent ones, within the parts between the cuts.

    The larger of two estimates: one for numbers each of which remembers the one before it, corrected for how few there
    are (Marriott and Pope, 1954), and Bartlett's sum over many lags, for slow drift.
    """
    rest = np.concatenate([_ranks(series[a:b]) / (b - a) - 0.5 - 0.5 / (b - a) for a, b in pairwise(bounds)])
    size, power = len(rest), float(rest @ rest)
    if power <= 0:
        return 1.0
    lags = range(1, max(int(np.sqrt(size)), 1) + 1)
    correlation = [float(rest[:-lag] @ rest[lag:]) / power for lag in lags]
    first = min(max((correlation[0] + 1 / size) / (1 - 3 / size), 0.0), 0.95)
    drift = 1 + 2 * sum((1 - lag / (len(lags) + 1)) * r for lag, r in zip(lags, correlation, strict=True))
    return max(1.0, (1 + first) / (1 - first), drift)


def _chance(part: F64, inflation: float, random: np.random.Generator) -> float:
    """How often a stretch in another order shows as large a change anywhere as it does.

    Asked of the ranks, which outliers cannot hide a change from, and of the numbers, of which a few suffice where the
    change is many times the noise; the answer is twice the smaller. The inflation counts twice: where neighbours depend
    on each other the levels differ by more, and the spread about them is measured too small by as much.
    """
    smaller = 1.0
    for numbers in (_ranks(part), part):
        observed = float(_contrast(numbers[None, :])[0]) / inflation**2
        shuffled = random.permuted(np.broadcast_to(numbers, (SHUFFLES, len(numbers))), axis=1)
        larger = np.count_nonzero(_contrast(shuffled) >= observed * (1 - 1e-12))
        smaller = min(smaller, float((1 + larger) / (1 + SHUFFLES)))
    return min(2 * smaller, 1.0)


def _contrast(rows: F64) -> F64:
    """Of each row how much more of its variance a single change of its mean explains than it leaves, at the best place.

    As a ratio, so that dividing it by the inflation takes nothing from a change beside which there is no noise.
    """
    size = rows.shape[1]
    left = np.arange(LEAST_PART, size - LEAST_PART + 1)
    centred = rows - rows.mean(axis=1, keepdims=True)
    whole = (centred**2).sum(axis=1)
    sums = np.cumsum(centred, axis=1)[:, left - 1]
    explained = size * (sums**2 / (left * (size - left))).max(axis=1)
    return np.asarray(explained / np.maximum(whole - explained, 1e-12 * whole + 1e-300), np.float64)
