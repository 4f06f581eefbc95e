"""Host time with a cause of its own (input, pauses, copies, allocation) that a rank spends and others do not.

Asked of the whole rank and of every step, whatever its role: the data loader of a pipeline stage can be compared with
that of any other rank. Time in two causes belongs to the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.stragglers.profile import ATTRIBUTES, Profile
from rankscope.causes.table import BY_NAME

__all__ = ["OwnDelay", "own_delays"]

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OwnDelay:
    """What one cause takes on one rank beyond the median of the others. ns."""

    column: int
    cause: str
    spans: intervals.Spans
    """Where, on the rank's own clock."""
    beyond: F64
    """(S,) per step of the rank: never less than 0."""
    total: F64
    """(S,) per step of the rank, all of it."""


def own_delays(views: Sequence[RankView], profiles: Sequence[Profile]) -> list[OwnDelay]:
    """All that is more than the others' in some step; of what is compared by its number nothing."""
    found = []
    for cause in (name for name in ATTRIBUTES if not BY_NAME[name].by_count):
        totals = [_by_step(view, own.spans[cause]) for view, own in zip(views, profiles, strict=True)]
        usual = np.array([float(np.median(total)) if len(total) else 0.0 for total in totals])
        for column, view in enumerate(views):
            others = np.delete(usual, column)
            beyond = np.maximum(totals[column] - (np.median(others) if len(others) else 0.0), 0.0)
            if view.steps and beyond.sum() > 0:
                found.append(OwnDelay(column, cause, profiles[column].spans[cause], beyond, totals[column]))
    return found


def _by_step(view: RankView, spans: intervals.Spans) -> F64:
    steps = view.trace.steps
    return intervals.cover(spans, steps.start, steps.end).astype(np.float64) if len(steps) else np.empty(0)
