"""Find clocks that were set within the window, which no offset and drift can align.

Time synchronisation may set CLOCK_REALTIME. The ends of that rank are then off by one amount before and by another
after. The moment is taken to be the end of the longest stretch, of the rank's own time between two such ends, in which
nothing begins or ends, because a clock that is set forward leaves a hole. A clock that is set back makes times
ambiguous where they repeat, and is found only where a pause longer than the jump hides the repetition. Of two ranks
alone, ends do not show which clock was set; it is then taken to be the one that was set forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.fit import Ends
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView

__all__ = ["ClockStep", "FoundStep", "find_clock_step"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

LEAST_NS = 100_000.0
"""Least jump, in ns. Time synchronisation slews smaller corrections, which appear as drift and are fitted as such."""

LEAST_SIDE = 4
"""Least number of calls before and after the jump. Of fewer, one late end would pass for a jump."""

CLEAR = 8.0
"""Least ratio of the jump to the scatter of the residuals around it."""


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A jump of a clock: from ``at`` on (own clock, ns), the clock is ahead of its earlier course by ``size`` ns."""

    at: int
    size: float


@dataclass(frozen=True, slots=True)
class FoundStep:
    """A jump of one rank's clock."""

    column: int
    step: ClockStep


def find_clock_step(
    views: Sequence[RankView],
    table: Ends,
    residual: F64,
    matched: Matched,
    ends: I64,
    usable: NDArray[np.bool_],
) -> FoundStep | None:
    """Return the largest significant jump of any rank's clock; None where there is none.

    Args:
        views: the ranks.
        table: ends of the usable calls, in ns.
        residual: difference of each end from the median of its call by the fit so far, in ns.
        matched: all calls.
        ends: ends of all members on their own clocks, in ns.
        usable: per call: whether it is in ``table``.
    """
    largest, best = (0.0, 0.0), None
    for column, (when, apart) in enumerate(zip(table.by_column(table.flat()), table.by_column(residual), strict=True)):
        found = _split(apart[np.argsort(when, kind="stable")]) if len(when) >= 2 * LEAST_SIDE else None
        if found is None:
            continue
        at, size = found
        if (round(abs(size), -3), size) <= largest:
            continue
        largest = round(abs(size), -3), size
        mine = matched.of(column)
        mine = mine[usable[matched.call[mine]]]
        mine = mine[np.argsort(ends[mine], kind="stable")]
        before, after = int(ends[mine[at - 1]]), int(ends[mine[at]])
        # With two members the median lies half way between their ends; with more it stays with the majority.
        whole = 2.0 * size if (matched.size[matched.call[mine]] == 2).all() else size
        best = FoundStep(column, ClockStep(_hole(views[column], before, after), whole))
    return best


def _split(apart: F64) -> tuple[int, float] | None:
    """Return (first index after the jump, its size) of a series that is level on both sides; None without a clear
    jump."""
    if float(np.ptp(apart)) < LEAST_NS:
        return None
    count = len(apart)
    sums = np.cumsum(apart - apart.mean())[:-1]
    place = np.arange(1, count)
    lean = np.abs(sums) / np.sqrt(place * (count - place))
    lean[: LEAST_SIDE - 1] = 0.0
    lean[count - LEAST_SIDE :] = 0.0
    at = int(np.argmax(lean)) + 1
    before, after = apart[:at], apart[at:]
    size = float(np.median(after) - np.median(before))
    scatter = float(np.median(np.abs(np.concatenate((before - np.median(before), after - np.median(after))))))
    return (at, size) if abs(size) > max(CLEAR * 1.4826 * scatter, LEAST_NS) else None


def _hole(view: RankView, low: int, high: int) -> int:
    """Return the end of the longest stretch of [low, high] in which no event of the rank begins or ends."""
    events = view.trace.events
    points = np.concatenate((events.start, events.end, view.trace.steps.start, view.trace.steps.end))
    points = np.unique(np.concatenate((points[(points > low) & (points < high)], [low, high])))
    return int(points[int(np.argmax(np.diff(points))) + 1]) if len(points) > 1 else high
