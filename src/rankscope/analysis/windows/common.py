"""The part of a window in which all ranks were recorded.

Profilers start and stop at different times. While a peer is not recorded, the others' waiting for it is not a property
of the job: it counts neither as wait, nor as communication, nor as pause, and is left out of the accounted time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView
from rankscope.listing import named_ranks

__all__ = ["common_window"]


def common_window(
    views: Sequence[RankView], matched: Matched, clocks: Clocks, waits: Waits
) -> tuple[list[RankView], list[str]]:
    """Return the views, accounted for only while all ranks were recorded, and what was left out, in words.

    The begin is cut if a call shows that others were in it before a rank's recording began. If there are steps, it is
    cut only if the others were ahead by more than a step, since ranks that synchronise in each step begin their marks
    within the same step. The end is cut if calls of a group come after a member's recording ended; if there are steps,
    those that all ranks ran are kept anyway.
    """
    start, late = _begin(views, matched, clocks, waits)
    end, soon = (None, []) if any(v.steps for v in views) else _end(views, matched, clocks)
    cut = [_cut(view, column, clocks, start, end) for column, view in enumerate(views)]
    notes = []
    if start is not None:
        least = min(_begun(v, c, clocks) for c, v in enumerate(views))
        notes.append(
            f"recording began up to {(start - least) / 1e6:.1f} ms later on {named_ranks(late)} than on others, "
            "which were in a collective by then: the time before is left out on all ranks"
        )
    if end is not None:
        most = max(_ended(v, c, clocks) for c, v in enumerate(views))
        notes.append(
            f"recording ended {(most - end) / 1e6:.1f} ms sooner on {named_ranks(soon)} than on others, which "
            "went on to call it: the time after is left out on all ranks"
        )
    return cut, notes


def _begun(view: RankView, column: int, clocks: Clocks) -> float:
    """Return the earliest event of a rank, aligned clock."""
    signs = [*view.trace.events.start[:1].tolist(), *view.trace.steps.start[:1].tolist()]
    return float(clocks.aligned(column, np.array([min(signs)], np.int64))[0])


def _ended(view: RankView, column: int, clocks: Clocks) -> float:
    """Return the latest event of a rank, aligned clock."""
    return float(clocks.aligned(column, np.array([int(view.trace.events.end.max())], np.int64))[0])


def _begin(views: Sequence[RankView], matched: Matched, clocks: Clocks, waits: Waits) -> tuple[float | None, list[int]]:
    early = np.flatnonzero(waits.early)
    if not len(early):
        return None, []
    begun = np.array([_begun(v, c, clocks) for c, v in enumerate(views)])
    columns = np.unique(matched.column[np.isin(matched.call, early)])
    start = float(begun[columns].max())
    step = np.concatenate([v.trace.steps.duration for v in views])
    if len(step) and start - float(begun[columns].min()) <= float(np.median(step)):
        return None, []
    arrived = float(waits.arrival[np.isin(matched.call, early)].min())
    return start, [views[c].rank for c in columns.tolist() if begun[c] > arrived]


def _end(views: Sequence[RankView], matched: Matched, clocks: Clocks) -> tuple[float | None, list[int]]:
    ended = {v.rank: _ended(v, c, clocks) for c, v in enumerate(views)}
    found: dict[int, float] = {}
    for column, view in enumerate(views):
        calls = view.trace.collectives
        rows = np.array(matched.extra[column], np.int64)
        if not len(rows):
            continue
        begun = clocks.aligned(column, view.trace.events.start[calls.event[rows]])
        for row, time in zip(rows.tolist(), begun.tolist(), strict=True):
            group = calls.group[row]
            members = view.trace.groups[group].ranks if group >= 0 else ()
            found |= {r: ended[r] for r in members or ended if r in ended and ended[r] < time}
    return (min(found.values()), sorted(found)) if found else (None, [])


def _cut(view: RankView, column: int, clocks: Clocks, start: float | None, end: float | None) -> RankView:
    first, last = view.start, view.end
    if start is not None:
        first = max(first, _own(column, clocks, start))
    if end is not None:
        last = min(last, _own(column, clocks, end))
    if first >= last:
        return view  # nothing in common: its own numbers are better than none
    # Without a device the replay begins at ``start``, too.
    return replace(view, start=first if view.device else view.start, free=max(view.free, first), end=last)


def _own(column: int, clocks: Clocks, aligned: float) -> int:
    """Convert a time of the aligned clock to the clock of a rank."""
    return clocks.origin + round((aligned - float(clocks.offset[column])) / (1.0 + float(clocks.drift[column])))
