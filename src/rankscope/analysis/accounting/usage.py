"""Where the time of one rank goes: compute, communication, copies, idle. Nanoseconds in, nanoseconds out.

A step's device time is that of the work it *launched* (architecture: a kernel belongs to the step of its launch), so
that a queue running behind the host does not shift work into the next step. Without a device it is what ran on the
host between the step's bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.intervals import Spans
from rankscope.analysis.rank.view import RankView
from rankscope.trace.names import Kind

__all__ = ["Usage", "step_bounds", "step_usage", "usage", "window_usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Lengths in ns. ``compute + exposed_comm + exposed_copy + idle == span``."""

    span: int
    compute: int
    comm: int
    overlap: int
    """Communication hidden behind compute."""
    exposed_comm: int
    exposed_copy: int
    """Copies hidden behind neither compute nor communication."""
    busy: int

    @property
    def idle(self) -> int:
        """Nothing at all ran."""
        return self.span - self.busy


def usage(compute: Spans, comm: Spans, copy: Spans, span: int | None = None) -> Usage:
    """Account for three sets; ``span`` defaults to the distance from first start to last end."""
    exposed_comm = intervals.measure(intervals.subtract(comm, compute))
    communication = intervals.measure(comm)
    exposed_copy = intervals.measure(intervals.subtract(intervals.subtract(copy, compute), comm))
    busy = intervals.measure(compute) + exposed_comm + exposed_copy
    if span is None:
        used = [s for s in (compute, comm, copy) if len(s[0])]
        span = max(int(s[1][-1]) for s in used) - min(int(s[0][0]) for s in used) if used else 0
    return Usage(
        span=max(span, busy),
        compute=intervals.measure(compute),
        comm=communication,
        overlap=communication - exposed_comm,
        exposed_comm=exposed_comm,
        exposed_copy=exposed_copy,
        busy=busy,
    )


def window_usage(view: RankView) -> Usage:
    """The recorded window but for work queued before it."""
    return usage(*view.accounted(), view.end - view.free)


def step_bounds(view: RankView) -> Spans:
    """Begin and end of each recorded step, as the time is accounted for.

    The host's step; on a device from the last work of the step before to the last of this one, so that the steps fill
    the window on both.
    """
    steps, events = view.trace.steps, view.trace.events
    if not view.device or not len(steps):
        return steps.start, steps.end
    rows = np.flatnonzero(np.isin(view.kind, (Kind.COMPUTE, Kind.COMMUNICATION, Kind.COPY)) & (events.step >= 0))
    ends = np.full(len(steps), view.free, np.int64)
    np.maximum.at(ends, events.step[rows], events.end[rows])
    ends = np.maximum.accumulate(ends)
    ends[-1] = view.end
    return np.concatenate(([view.free], ends[:-1])), ends


def step_usage(view: RankView, bounds: Spans) -> list[Usage]:
    """One :class:`Usage` per recorded step; ``bounds`` are those of :func:`step_bounds`."""
    events, rows = view.trace.events, []
    work = [np.flatnonzero(view.kind == k) for k in (Kind.COMPUTE, Kind.COMMUNICATION, Kind.COPY)]
    for index, (start, end) in enumerate(zip(*(b.tolist() for b in bounds), strict=True)):
        if view.device:
            of_step = [mine[events.step[mine] == index] for mine in work]
            parts = [intervals.union(events.start[mine], events.end[mine]) for mine in of_step]
        else:
            parts = [intervals.clip(s, start, end) for s in (view.compute, view.comm, view.copy)]
        rows.append(usage(parts[0], parts[1], parts[2], end - start))
    return rows
