"""Detect steps that are struck periodically, more often than by chance.

A step is struck if its charge exceeds a share of a usual step. For each period and each position in it, k of n steps at
this position are struck, and the share q of all other steps. The test is the binomial tail of k among n at q, corrected
for all periods, positions and shares that were tried. A score by peak height is no such test: it named a rank in each
of three healthy jobs on a loaded machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST", "Recurrence", "binomial_tail", "least_seen", "recurring"]

LARGEST = 200
"""Largest period, in steps. A longer one needs more steps than a reporting interval has."""
SHARES = (0.05, 0.1, 0.2, 0.4)
"""Shares of a usual step above which a step is struck."""
LEAST_TIMES = 4
"""Least number of repetitions; fewer are no pattern, whatever their probability."""
REPEATS = 0.7
"""Least share of the steps at the position that must be struck for it to count as periodic."""
ELSEWHERE = 0.3
"""Largest share of all other steps that may be struck."""
TESTS = LARGEST * (LARGEST + 1) / 2 * len(SHARES)

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Of the ``of`` compared steps whose number is ``place`` modulo ``period``, ``seen`` are struck."""

    period: int
    place: int
    seen: int
    of: int
    log_p: float
    """Natural logarithm of the probability by chance, corrected for the number of tests."""
    share: float


def recurring(charge: F64, compared: npt.NDArray[np.bool_], usual: float, first: int = 0) -> Recurrence | None:
    """Return the recurrence that is least probable by chance; None where nothing recurs.

    Args:
        charge: lateness of one rank by step, in ms.
        compared: mask of the steps that count.
        usual: usual step time, in ms.
        first: number of the first step.
    """
    numbers = np.flatnonzero(compared) + first
    charge = charge[compared]
    best: Recurrence | None = None
    struck = {share: numbers[charge > share * usual] for share in SHARES}
    struck = {share: found for share, found in struck.items() if len(found) >= LEAST_TIMES}
    for period in range(2, LARGEST + 1) if struck else ():
        of = np.bincount(numbers % period, minlength=period)
        for share, found in struck.items():
            hits = np.bincount(found % period, minlength=period)
            often = hits / np.maximum(of, 1)
            place = int(np.lexsort((often, hits))[-1])
            best = _better(best, period, place, int(hits[place]), int(of[place]), len(found), len(numbers), share)
    return best


def least_seen(charge: F64, usual: float, sure: float, worth: float) -> tuple[float, int] | None:
    """Return the smallest burst that could not have been missed: its size in ms, and its longest period in steps.

    A rank that is later than that once in each period is struck often enough to be told from its other steps, whatever
    the place. None where ranks are late too often for that, or the steps are too few.

    Args:
        charge: lateness in the compared steps, shape (ranks, steps), in ms.
        usual: usual step time, in ms.
        sure: probability by chance, over all ranks, below which a burst is told.
        worth: share of a usual step that a burst has to cost per step on average to be told.
    """
    ranks, steps = charge.shape
    needed = math.log(TESTS) + math.log(ranks) - math.log(sure)
    for share in SHARES:
        rate = max(float((charge > share * usual).mean(axis=1).max()), 1.0 / steps)
        if rate > ELSEWHERE:
            continue
        period = min(steps // max(math.ceil(needed / -math.log(rate)), LEAST_TIMES), LARGEST)
        if period >= 2:
            return max(share, worth * period) * usual, period
    return None


def _better(
    best: Recurrence | None, period: int, place: int, seen: int, of: int, struck: int, steps: int, share: float
) -> Recurrence | None:
    elsewhere = max((struck - seen) / max(steps - of, 1), 1.0 / steps)
    if seen < max(LEAST_TIMES, REPEATS * of) or elsewhere > ELSEWHERE:
        return best
    log_p = binomial_tail(seen, of, elsewhere) + math.log(TESTS)
    if best is None or log_p < best.log_p:
        return Recurrence(period, place, seen, of, log_p, share)
    return best


def binomial_tail(k: int, n: int, q: float) -> float:
    """Natural logarithm of the probability of at least ``k`` of ``n`` events, each of probability ``q``, 0 < q < 1."""
    terms = [
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(q) + (n - i) * math.log1p(-q)
        for i in range(k, n + 1)
    ]
    top = max(terms)
    return top + math.log(sum(math.exp(term - top) for term in terms))
