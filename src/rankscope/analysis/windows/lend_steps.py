"""Steps of a rank that was recorded without marks: taken from another rank, by the calls that both take part in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.segments import launch_times
from rankscope.trace.columns import RankTrace, Steps
from rankscope.trace.steps import step_of

__all__ = ["lend_steps"]

I64 = NDArray[np.int64]


def lend_steps(views: Sequence[RankView], matched: Matched, clocks: Clocks) -> dict[int, tuple[RankTrace, int]]:
    """Return column of each rank without marks -> its trace with steps, and the column of the rank they are from.

    Ranks that no other rank can provide steps for are left out. A step of the rank begins where the other's does, on
    the aligned clock, but never after the first launch of the calls that belong to it, nor before the last of those
    that belong to the previous step.
    """
    found: dict[int, tuple[RankTrace, int]] = {}
    marked = [c for c, v in enumerate(views) if v.steps]
    for column, view in enumerate(views):
        if view.steps or not marked:
            continue
        calls = matched.call[matched.of(column)]
        shared = [int(np.isin(calls, matched.call[matched.of(c)]).sum()) for c in marked]
        lender = marked[int(np.argmax(shared))]
        steps = _steps(views, (column, lender), matched, clocks) if max(shared) else None
        if steps is not None:
            events = replace(view.trace.events, step=step_of(view.trace.events, steps))
            found[column] = replace(view.trace, events=events, steps=steps), lender
    return found


def _steps(views: Sequence[RankView], columns: tuple[int, int], matched: Matched, clocks: Clocks) -> Steps | None:
    column, lender = columns
    own, other = views[column], views[lender]
    calls = np.intersect1d(matched.call[matched.of(column)], matched.call[matched.of(lender)]).astype(np.int64)
    rows = matched.row[matched.at(calls, column)].astype(np.int64)
    theirs = matched.row[matched.at(calls, lender)]
    step = other.trace.events.step[other.trace.collectives.event[theirs]]
    launched = launch_times(own, rows)
    launched, step = launched[step >= 0], step[step >= 0]
    if not len(step):
        return None
    first, last = int(step.min()), int(step.max())
    marks = other.trace.steps
    edges = np.append(marks.start[first : last + 1], marks.end[last])
    aligned = clocks.aligned(lender, edges)
    moved = (aligned - clocks.offset[column]) / (1.0 + clocks.drift[column])
    bounds = clocks.origin + np.round(moved).astype(np.int64)
    for place in range(len(bounds)):
        before, after = launched[step < first + place], launched[step >= first + place]
        least = int(before.max()) + 1 if len(before) else None
        most = int(after.min()) if len(after) else None
        if least is not None and most is not None and least > most:
            return None  # the calls of the other rank's steps are not in the order of this rank's
        if least is not None:
            bounds[place] = max(int(bounds[place]), least)
        if most is not None:
            bounds[place] = min(int(bounds[place]), most)
    return Steps(marks.number[first : last + 1].copy(), bounds[:-1], np.diff(bounds))
