"""The end of a recording, where host and device are not in the same step.

A window of rankscope stays open until the device has finished its steps (agent/windows/recording.py); host activity in
the meantime belongs to steps outside the window. In traces of other tools the device may not have run the last steps,
because libkineto keeps nothing that runs after the stop. Both are removed before anything is counted per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from rankscope.analysis.rank.select import take
from rankscope.analysis.rank.view import name_mask
from rankscope.statistics.medians import median_of_others
from rankscope.trace.columns import RankTrace, Steps
from rankscope.trace.scratch import Scratch

__all__ = ["covers_less", "whole_steps"]

MISSING = 0.05
"""A step counts as unfinished if kernels of more than this share of its launches are missing at its end."""


def whole_steps(traces: Sequence[RankTrace]) -> list[RankTrace]:
    """Trim the traces of a window to the last step that every device has run: later steps, host events after them, and
    their work are removed. Host events after the last step are kept in traces that rankscope did not record, because
    they were recorded on purpose."""
    runs = [_steps_run(trace) for trace in traces]
    last = min((int(t.steps.number[run - 1]) for t, run in zip(traces, runs, strict=True) if run), default=-1)
    counts = [int((t.steps.number[:run] <= last).sum()) for t, run in zip(traces, runs, strict=True)]
    if any(run and not count for run, count in zip(runs, counts, strict=True)):
        counts = runs  # they recorded different steps
    scratch, whole = Scratch(), list[RankTrace]()
    for trace, count in zip(traces, counts, strict=True):
        whole.append(_up_to(trace, count))
        if whole[-1] is not trace:
            scratch.take(whole[-1].events, whole[-1].collectives)
    return whole


def covers_less(traces: Sequence[RankTrace]) -> list[str | None]:
    """Return for each trace of a window why it covers less than others, in words; None if it does not.

    Either its device records end before its own step marks and before those of most others (at the end of a recording
    all devices may be some steps behind), or its marks end before theirs, or begin after theirs. A window with the same
    number of steps that began earlier or later is whole.
    """
    found: list[str | None] = [None] * len(traces)
    marked = [(place, trace.steps.number, _steps_run(trace)) for place, trace in enumerate(traces) if len(trace.steps)]
    if len(marked) < 2:
        return found
    table = np.array([[number[0], number[-1], number[run - 1], len(number)] for _, number, run in marked], np.float64)
    usual = median_of_others(table.T).T.tolist()
    for (place, number, run), (first, last, reached, count) in zip(marked, usual, strict=True):
        if run < len(number) and number[run - 1] < reached:
            found[place] = (
                f"its device records end after step {number[run - 1]}, its step marks after step {number[-1]}"
            )
        elif len(number) < count and number[-1] < int(last):
            found[place] = f"its recording ends after step {number[-1]}, that of most others after step {int(last)}"
        elif len(number) < count and number[0] > int(first):
            found[place] = f"its recording begins with step {number[0]}, that of most others with step {int(first)}"
    return found


def _up_to(trace: RankTrace, count: int) -> RankTrace:
    if not count or not trace.has_device or (count == len(trace.steps) and "rankscope" not in trace.meta.raw):
        return trace
    steps = Steps(**{f.name: getattr(trace.steps, f.name)[:count] for f in fields(Steps)})
    events = trace.events
    host = (events.stream < 0) & (events.start >= int(steps.end[-1]))
    tail = host | ((events.launch >= 0) & host[events.launch])
    if count == len(trace.steps) and not tail.any():
        return trace
    kept = take(trace, np.flatnonzero(~tail))
    kept.events.step = np.where(kept.events.step < count, kept.events.step, np.int32(-1))
    return replace(kept, steps=steps)


def _steps_run(trace: RankTrace) -> int:
    """Return how many steps, from the first, the device finished; all of them if there is no device or it ran none."""
    events, count = trace.events, len(trace.steps)
    if not trace.has_device:
        return count
    launches = (events.stream < 0) & (events.step >= 0) & name_mask(trace, lambda name: "LaunchKernel" in name)
    rows = np.flatnonzero(launches)
    ran = np.flatnonzero(events.launching[rows])
    # Work missing before the last launch that did run was lost: single records, not the end.
    unrun = rows[int(ran[-1]) + 1 :] if len(ran) else rows
    asked = np.bincount(events.step[rows], minlength=count)
    missing = np.bincount(events.step[unrun], minlength=count)
    whole = np.flatnonzero(missing <= np.maximum(MISSING * asked, 1))
    return int(whole[-1]) + 1 if len(whole) else count
