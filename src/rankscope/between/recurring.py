"""Do steps that are struck come back every so many steps, more often than chance allows?

Steps charged beyond a share of a step are struck. For each period and each place in it, of n such steps k are struck,
and of all other steps a share q: the binomial tail of k among n at q, corrected for all periods, places and shares that
were looked at. A score of the height of a peak is no such test: in healthy jobs on a loaded machine it named a rank in
each of three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST", "Recurrence", "binomial_tail", "recurring"]

LARGEST = 200
"""Steps. A longer period needs more steps than there are in a reporting interval to show at all."""
SHARES = (0.05, 0.1, 0.2, 0.4)
"""Of a usual step."""
LEAST_TIMES = 4
"""Fewer repeats are no pattern, whatever their chance."""
REPEATS = 0.7
"""Share of the steps at the place that must be struck: what comes back less often is no habit."""
ELSEWHERE = 0.3
"""Share of all other steps that may be struck."""
TESTS = LARGEST * (LARGEST + 1) / 2 * len(SHARES)

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """``seen`` of the ``of`` compared steps whose number is ``place`` modulo ``period`` are struck."""

    period: int
    place: int
    seen: int
    of: int
    log_p: float
    """Natural logarithm of the chance, corrected."""
    share: float


def recurring(charge: F64, compared: npt.NDArray[np.bool_], usual: float, first: int = 0) -> Recurrence | None:
    """The recurrence that chance explains least; None where nothing recurs.

    Args:
        charge: of one rank by step, ms.
        compared: steps that count.
        usual: a usual step, ms.
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
    """Natural logarithm of the chance of at least ``k`` of ``n`` where each has the chance ``q``, 0 < q < 1."""
    terms = [
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(q) + (n - i) * math.log1p(-q)
        for i in range(k, n + 1)
    ]
    top = max(terms)
    return top + math.log(sum(math.exp(term - top) for term in terms))
