"""Calls whose time hardly depends on their size, and which could be one call: gradients and parameters by parts.

The time of a call is a fixed part and one that grows with its size. Both follow from the calls of one group and kind by
a fit over their sizes. Only calls that need not be separate count: those of DDP's buckets and FSDP's modules, and those
that a rank issues one after the other without work in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.calls import SameCalls, same_calls
from rankscope.analysis.gains.faster import gain_ms, with_faster_calls
from rankscope.analysis.gains.work_gains import priced
from rankscope.analysis.replay.segments import launch_times
from rankscope.analysis.tables.modules import labels_of_calls
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.analysis.windows.result import once_per_window
from rankscope.records.changes import SmallCalls
from rankscope.statistics.chance import student_quantile
from rankscope.trace.names import Kind

__all__ = ["merged", "small_calls"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

SIZES = 4
"""Least number of different sizes for a fit: it leaves two degrees of freedom for the error."""
SPREAD = 4.0
"""Least ratio of the largest to the smallest size."""
MOSTLY = 0.5
"""Share of the calls' time that does not depend on their size, from which on merging them is worth a change."""
LEVEL = 0.05


def small_calls(windows: Sequence[WindowResult]) -> list[SmallCalls]:
    """Return the groups and kinds of such calls, those with most time first, each with the gain of making them one call
    a step; the gain is an upper bound, because the first of them would begin later."""
    found: dict[tuple[tuple[int, ...], str], SmallCalls] = {}
    for window in priced(windows):
        steps = max(window.step_count, 1)
        for calls, fixed in _small(window):
            key = (calls.group.ranks, calls.kind)
            if key in found or len(calls.call) < 2 * steps:
                continue
            found[key] = SmallCalls(
                ranks=list(calls.group.ranks),
                kind=calls.kind,
                calls=len(calls.call) / steps,
                fixed_us=fixed / 1e3,
                mean_us=float(calls.transfer.mean()) / 1e3,
                megabytes=float(calls.size.mean()) / 1e6,
                high_ms=gain_ms(windows, lambda w, work, key=key: merged(w, work, key)),  # type: ignore[misc]
            )
    return list(found.values())


def merged(window: WindowResult, work: F64, key: tuple[tuple[int, ...], str] | None = None) -> F64:
    """Return the work per edge if such calls were one call a step; ``key``: only those of this group's ranks and
    kind."""
    factor = np.ones(len(window.matched))
    for calls, fixed in _small(window):
        if key is None or key == (calls.group.ranks, calls.kind):
            step = window.waits.steps.of_call[calls.call]
            _, place, count = np.unique(step, return_inverse=True, return_counts=True)
            less = fixed * (1.0 - 1.0 / count[place.reshape(-1)])
            factor[calls.call] = np.maximum(1.0 - less / calls.transfer, 0.0)
    return with_faster_calls(window, work, factor)


@once_per_window
def _small(window: WindowResult) -> list[tuple[SameCalls, float]]:
    """Return calls that could be one and whose time hardly depends on their size; and the time that does not, ns."""
    labels = labels_of_calls(window)
    labelled = np.array([bool(label) for label in labels] or np.zeros(len(window.matched)), np.bool_)
    found = []
    for calls in same_calls(window):
        fixed = _fixed_ns(calls.moved, calls.transfer)
        if fixed is None:
            continue
        kept = labelled[calls.call] | _in_a_row(window, calls.call)
        if kept.sum() > 1:
            found.append((calls.some(kept), fixed))
    return found


def _fixed_ns(moved: F64, transfer: F64) -> float | None:
    """Return the time of a call that does not depend on its size, ns; None unless it surely is most of it."""
    sizes, place, count = np.unique(moved, return_inverse=True, return_counts=True)
    if len(sizes) < SIZES or sizes[-1] < SPREAD * max(sizes[0], 1.0):
        return None
    place = place.reshape(-1)
    usual = np.array([float(np.median(transfer[place == number])) for number in range(len(sizes))])
    # noise is proportional to the time, and less in the median of many calls
    (_, fixed), spread = np.polyfit(sizes, usual, 1, w=np.sqrt(count) / usual, cov=True)
    error = student_quantile(LEVEL / 2, len(sizes) - 2) * float(np.sqrt(spread[1, 1]))
    return float(fixed) if fixed - error > MOSTLY * float(transfer.mean()) else None


def _in_a_row(window: WindowResult, calls: I64) -> NDArray[np.bool_]:
    """Return which of the calls a rank issues directly after or before another one of them, with no kernel (operator)
    between them; by the first rank that takes part."""
    matched = window.matched
    column = int(matched.column[matched.first[calls[0]]])
    view, members = window.views[column], matched.of(column)
    members = members[np.isin(matched.call[members], calls)]
    events = view.trace.events
    own = launch_times(view, matched.row[members].astype(np.int64))
    order = np.argsort(own, kind="stable")
    if view.device:
        launched = events.launch[(view.kind == Kind.COMPUTE) & (events.launch >= 0)]
        work = np.sort(events.start[launched])
    else:
        work = np.sort(events.start[view.kind == Kind.COMPUTE])
    before = np.searchsorted(work, own[order])
    joined = np.flatnonzero(np.diff(before) == 0)
    found = np.zeros(len(matched), np.bool_)
    near = matched.call[members][order]
    found[near[joined]] = True
    found[near[joined + 1]] = True
    return found[calls]
