"""Host time with a named cause (input, pauses, copies, allocation) that a rank spends and others do not.

It is tested for the whole rank in every step, regardless of its role: the data loader of a pipeline stage can be
compared with that of any other rank. Time that has two causes counts for the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.stragglers.candidates import Candidate, Window
from rankscope.analysis.stragglers.cost import RankCost
from rankscope.analysis.stragglers.profile import ATTRIBUTES, Profile
from rankscope.analysis.stragglers.statistics import above
from rankscope.causes.table import BY_NAME
from rankscope.statistics.medians import median_of_others
from rankscope.statistics.thresholds import LEAST_COST

__all__ = ["OwnDelay", "delays_in_some_steps", "host_delays", "own_delays"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OwnDelay:
    """Time of one cause on one rank, and its excess over the median of the others. Times in ns."""

    column: int
    cause: str
    spans: intervals.Spans
    """Intervals of this time on the rank's own clock."""
    beyond: F64
    """Per step of the rank, shape (S,): time beyond the median of the others, at least 0."""
    total: F64
    """Per step of the rank, shape (S,): all of the time."""


def own_delays(views: Sequence[RankView], profiles: Sequence[Profile]) -> list[OwnDelay]:
    """Return all causes that take longer than on the others in some step, except causes that are compared by count."""
    found = []
    for cause in (name for name in ATTRIBUTES if not BY_NAME[name].by_count):
        totals = [_by_step(view, own.spans[cause]) for view, own in zip(views, profiles, strict=True)]
        usual = np.array([float(np.median(total)) if total.any() else 0.0 for total in totals])
        others = median_of_others(usual[None])[0] if len(usual) > 1 else np.zeros(len(usual))
        for column, view in enumerate(views):
            beyond = np.maximum(totals[column] - others[column], 0.0)
            if view.steps and beyond.sum() > 0:
                found.append(OwnDelay(column, cause, profiles[column].spans[cause], beyond, totals[column]))
    return found


def host_delays(window: Window) -> list[Candidate]:
    """Return one candidate for each rank and cause that takes significantly longer than elsewhere, over all steps."""
    delays = own_delays(window.views, window.profiles)
    if not delays:
        return []
    steps = max(len(d.beyond) for d in delays)
    values = np.full((len(delays), steps), np.nan)
    for row, delay in enumerate(delays):
        values[row, : len(delay.beyond)] = delay.beyond
    always, mean, error = above(values)
    found = []
    for row in np.flatnonzero(always).tolist():
        delay = delays[row]
        edges, less = _removed(window, delay)
        relative = float(error[row] / mean[row])
        found.append(Candidate(delay.column, delay.cause, edges, less, float(delay.beyond.sum()), relative))
    return found


def delays_in_some_steps(window: Window, step_ns: float) -> list[RankCost]:
    """Return for each rank the cost of its longest delay, with the gain of each step, however few steps it is in.

    It is for stages of a pipeline. Ranks with peers are compared with them place by place (:mod:`cost`).
    """
    replay = window.replay
    found = [RankCost(np.zeros(replay.steps)) for _ in window.views]
    for delay in own_delays(window.views, window.profiles):
        extra = float(delay.beyond.sum())
        if extra < LEAST_COST * step_ns * replay.steps or not window.trusted[delay.column]:
            continue  # removing it gains no more than that
        edges, less = _removed(window, delay)
        work = replay.graph.work.copy()
        work[edges] -= less
        gains = replay.gains(work)
        if gains.sum() > found[delay.column].gains.sum():
            found[delay.column] = RankCost(gains, excess=extra, explained={delay.cause: extra})
    return found


def _removed(window: Window, delay: OwnDelay) -> tuple[I64, F64]:
    """Return the edges of the host's work in a delay, and what each of them has beyond the usual, in ns."""
    edges, inside = window.host_time(delay.column, delay.spans)
    share = float(delay.beyond.sum() / delay.total.sum())
    return edges, np.minimum(inside * share, window.replay.graph.work[edges])


def _by_step(view: RankView, spans: intervals.Spans) -> F64:
    steps = view.trace.steps
    return intervals.cover(spans, steps.start, steps.end).astype(np.float64) if len(steps) else np.empty(0)
