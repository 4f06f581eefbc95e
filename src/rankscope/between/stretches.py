"""Detect whether a rank is late for a whole stretch of steps: always, from some step on, or for a while.

Steps are grouped by five, since neighbouring steps are correlated and tests that assume independence name ranks in
healthy runs. A group is struck if most of its steps are. The score of a stretch is the sum over its groups of a log
likelihood ratio: of the probability in a stretch (struck with probability :data:`INSIDE`) to that outside of it (struck
at the rate seen there). The expected number of stretches that reach a score by chance is at most the number of groups
times exp(-score) (Karlin and Altschul, PNAS 87, 1990).

What counts as struck is tried at several levels: a low one finds long stretches of little lateness; but where healthy
steps are often that late, a short stretch of much lateness shows at a higher one only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankscope.statistics.thresholds import LEAST_COST

__all__ = ["GROUP", "Stretch", "is_growing", "joined", "stretches", "struck_on_others"]

GROUP = 5
LEVELS = (LEAST_COST, 4 * LEAST_COST, 16 * LEAST_COST)
"""Shares of a usual step by which a rank is late in a struck step. They cover what matters to nearly a whole step."""
INSIDE = 0.8
MOST = 5
"""Largest number of stretches of one rank."""
_MOST_FITTED = 120
"""Largest number of points to which a line is fitted; for longer stretches, they are medians of larger groups."""

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch as indices into the compared steps, with ``end`` excluded."""

    begin: int
    end: int
    seen: int
    """Number of struck steps in it."""
    log_p: float


def stretches(charge: F64, usual: float, beside: Sequence[float]) -> list[Stretch]:
    """Return the stretches in which a rank is late, the most certain first.

    Args:
        charge: lateness of one rank in the compared steps, in ms.
        usual: usual step time, in ms.
        beside: share of groups that are struck on its peers, for each of :data:`LEVELS`.
    """
    struck = [charge > level * usual for level in LEVELS]
    groups = len(charge) // GROUP
    if groups < 2:
        return []
    most = [_most(at_level) for at_level in struck]
    found: list[Stretch] = []
    taken = np.zeros(groups, bool)
    for _ in range(MOST):
        best = [(_best(most[k], taken, beside[k]), k) for k in range(len(LEVELS))]
        seen = [(log_p, begin, end, k) for (begin, end, log_p), k in best if end > begin]
        if not seen:
            break
        log_p, begin, end, k = min(seen)
        taken[begin:end] = True
        first, last = _exact(struck[k], begin * GROUP, end * GROUP)
        if end == groups and struck[k][groups * GROUP :].any():
            last = len(charge)
        found.append(Stretch(first, last, int(struck[k][first:last].sum()), log_p + math.log(len(LEVELS))))
    return found


def joined(found: Iterable[Stretch]) -> list[Stretch]:
    """Return the stretches, neighbours as one: the begin of a drift may be found at another level than the rest."""
    whole: list[Stretch] = []
    for part in sorted(found, key=lambda stretch: stretch.begin):
        if whole and part.begin - whole[-1].end < GROUP:
            last = whole[-1]
            seen, log_p = last.seen + part.seen, min(last.log_p, part.log_p)
            whole[-1] = Stretch(last.begin, max(last.end, part.end), seen, log_p)
        else:
            whole.append(part)
    return sorted(whole, key=lambda stretch: stretch.log_p)


def _most(struck: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return for each whole group whether most of its steps are struck. Steps are the last axis."""
    groups = struck.shape[-1] // GROUP
    by_group = struck[..., : groups * GROUP].reshape(*struck.shape[:-1], groups, GROUP)
    return np.asarray(by_group.sum(axis=-1) > GROUP // 2)


def _best(most: npt.NDArray[np.bool_], taken: npt.NDArray[np.bool_], beside: float) -> tuple[int, int, float]:
    """Return begin, end and log of the probability of the stretch with the highest score that overlaps none taken so
    far; an empty one if there is none. The rate is that of the groups outside of it."""
    rate, found = max(beside, 1.0 / len(most)), (0, 0, 0.0)
    for _ in range(3):  # the rate outside depends on the stretch
        if rate >= INSIDE:
            return 0, 0, 0.0
        scores = np.where(most, math.log(INSIDE / rate), math.log((1 - INSIDE) / (1 - rate)))
        scores[taken] = -np.inf
        begin, end, score = _highest(scores)
        if end <= begin:
            return 0, 0, 0.0
        found = begin, end, math.log(len(most)) - score
        outside = ~taken
        outside[begin:end] = False
        again = max(beside, 1.0 / len(most), float(most[outside].mean()) if outside.any() else 0.0)
        if again == rate:
            break
        rate = again
    return found


def _highest(scores: F64) -> tuple[int, int, float]:
    """Return begin, end and sum of the stretch with the largest sum."""
    best, begin, total, start = 0.0, 0, 0.0, 0
    end = 0
    for place, score in enumerate(scores.tolist()):
        total += score
        if total <= 0:
            total, start = 0.0, place + 1
        elif total > best:
            best, begin, end = total, start, place + 1
    return begin, end, best


def _exact(struck: npt.NDArray[np.bool_], begin: int, end: int) -> tuple[int, int]:
    """Move both ends, by less than a group, to the begin and the end of the struck steps."""
    low, high = max(begin - GROUP + 1, 0), min(begin + GROUP, end)
    gains = np.cumsum(np.where(struck[low:high], 1, -1)[::-1])[::-1]
    first = low + int(np.argmax(gains))
    low, high = max(end - GROUP, first), min(end + GROUP - 1, len(struck))
    gains = np.cumsum(np.where(struck[low:high], 1, -1))
    return first, low + int(np.argmax(gains)) + 1 if len(gains) else end


def is_growing(late: F64) -> bool:
    """Whether a rank's lateness grows, rather than being constant from some step on.

    That is so if medians of groups are closer to a line that begins to rise at some point than to two levels, and if
    the line rises by at least half of its final value.

    Args:
        late: lateness in ms over the stretch, and over as many steps before it as exist, at most its length.
    """
    groups = len(late) // GROUP
    if groups < 2 * GROUP:
        return False
    width = GROUP * -(-groups // _MOST_FITTED)
    groups = len(late) // width
    medians = np.median(late[: groups * width].reshape(groups, width), axis=1)
    places = np.arange(groups, dtype=np.float64)
    level = min(_spread(medians[:cut]) + _spread(medians[cut:]) for cut in range(1, groups))
    best, rise = math.inf, 0.0
    for knee in range(groups - GROUP):
        ramp = np.maximum(places - knee, 0.0)
        slope = float(((ramp - ramp.mean()) * (medians - medians.mean())).sum() / ((ramp - ramp.mean()) ** 2).sum())
        found = _spread(medians - slope * ramp)
        if found < best:
            best, rise = found, slope * float(ramp[-1])
    ends_at = float(np.median(medians[-max(groups // 8, 2) :]))
    return best < level and rise >= 0.5 * ends_at > 0


def _spread(values: F64) -> float:
    return float(((values - values.mean()) ** 2).sum())


def struck_on_others(charges: F64, usual: float) -> Iterator[list[float]]:
    """Yield for each rank the mean share of groups that are struck on the others, for each of :data:`LEVELS`."""
    most = [_most(charges > level * usual) for level in LEVELS]
    rates = [at_level.mean(axis=1) if at_level.shape[1] else np.zeros(len(charges)) for at_level in most]
    for rank in range(len(charges)):
        yield [float(np.delete(of_ranks, rank).mean()) for of_ranks in rates]
