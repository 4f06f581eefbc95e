"""Where the time of one rank is spent: compute, communication, copies, idle. All times are in nanoseconds.

A step's device time is that of the work it *launched* (a kernel belongs to the step of its launch, see architecture),
so that a queue behind the host does not shift work into the next step. Without a device it is what ran on the host
between the step's bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.devices import by_device
from rankscope.analysis.rank.intervals import Spans
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.view import RankView
from rankscope.statistics.grouping import largest_by_key
from rankscope.trace.names import DEVICE_WORK

__all__ = ["DeviceTime", "Usage", "device_times", "step_bounds", "step_usage", "usage", "window_usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Durations in ns. ``compute + fused + exposed_comm + exposed_copy + idle == span``."""

    span: int
    compute: int
    comm: int
    overlap: int
    """Communication overlapped by compute."""
    exposed_comm: int
    exposed_copy: int
    """Copies overlapped neither by compute nor by communication."""
    busy: int
    fused: int = 0
    """Kernels that compute and communicate at once, while no compute runs."""

    @property
    def idle(self) -> int:
        """Time in which nothing ran."""
        return self.span - self.busy


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """The accounted time of one device of a rank; without a device, that of its training thread."""

    view: RankView
    """The rank with the work of this device only."""
    usage: Usage
    exposed: Spans
    """Communication that no compute overlaps."""


def device_times(view: RankView) -> list[DeviceTime]:
    """Account for the recorded window, without work queued before it, on each device of a rank."""
    found = []
    for own in by_device(view):
        parts = own.accounted()
        apart = _apart(*parts)
        found.append(DeviceTime(own, _of_sets(own.end - own.free, parts, apart), apart[1]))
    return found


def usage(
    compute: Spans, comm: Spans, copy: Spans, fused: Spans = intervals.EMPTY, *, span: int | None = None
) -> Usage:
    """Account for four sets; ``span`` defaults to the distance from first start to last end.

    A kernel that computes and communicates overlaps communication as compute does.
    """
    if span is None:
        used = [s for s in (compute, comm, copy, fused) if len(s[0])]
        span = max(int(s[1][-1]) for s in used) - min(int(s[0][0]) for s in used) if used else 0
    parts = compute, comm, copy, fused
    return _of_sets(span, parts, _apart(*parts))


def _of_sets(span: int, parts: Sequence[Spans], apart: Sequence[Spans]) -> Usage:
    return _of_lengths(span, *(intervals.measure(s) for s in (*parts[:2], *apart)))


def _apart(compute: Spans, comm: Spans, copy: Spans, fused: Spans) -> tuple[Spans, Spans, Spans]:
    """Return kernels that do both, communication and copies, each without the time of compute and of the kinds before
    it."""
    bare = intervals.subtract(fused, compute)
    exposed = intervals.subtract(intervals.subtract(comm, compute), bare)
    copied = intervals.subtract(intervals.subtract(intervals.subtract(copy, compute), bare), comm)
    return bare, exposed, copied


def _of_lengths(span: int, compute: int, comm: int, bare: int, exposed_comm: int, exposed_copy: int) -> Usage:
    busy = compute + bare + exposed_comm + exposed_copy
    return Usage(
        span=max(span, busy),
        compute=compute,
        comm=comm,
        overlap=comm - exposed_comm,
        exposed_comm=exposed_comm,
        exposed_copy=exposed_copy,
        busy=busy,
        fused=bare,
    )


def _mean(parts: Sequence[Usage]) -> Usage:
    """Return the mean over the devices of one rank."""
    if len(parts) == 1:
        return parts[0]
    return Usage(**{f.name: round(sum(getattr(p, f.name) for p in parts) / len(parts)) for f in fields(Usage)})


def window_usage(devices: Sequence[DeviceTime]) -> Usage:
    """Return the usage of a rank: with several devices, the mean over devices."""
    return _mean([device.usage for device in devices])


def step_bounds(view: RankView) -> Spans:
    """Return begin and end of each recorded step, by which time is accounted for.

    The host's step; with a device from the end of the previous step's last work to the end of this one's, so that the
    steps fill the window in both cases.
    """
    steps, events = view.trace.steps, view.trace.events
    if not view.device or not len(steps):
        return np.maximum(steps.start, view.free), np.maximum(steps.end, view.free)
    rows = np.flatnonzero(one_of(view.kind, DEVICE_WORK) & (events.step >= 0))
    ends = largest_by_key(events.step[rows], events.start[rows] + events.duration[rows], len(steps), view.free)
    ends = np.maximum.accumulate(ends)
    ends[-1] = view.end
    return np.concatenate(([view.free], ends[:-1])), ends


def step_usage(devices: Sequence[DeviceTime], bounds: Spans) -> list[Usage]:
    """Return one :class:`Usage` per recorded step, with several devices the mean; ``bounds``: those of
    :func:`step_bounds`."""
    parts = [_step_usage(device.view, bounds) for device in devices]
    return parts[0] if len(parts) == 1 else [_mean(step) for step in zip(*parts, strict=True)]


def _step_usage(view: RankView, bounds: Spans) -> list[Usage]:
    begin, end = bounds
    if view.device:
        return _launched_in_steps(view, end - begin)
    sets = view.compute, view.comm, view.copy, view.fused
    return [
        usage(*(intervals.clip(s, start, stop) for s in sets), span=stop - start)
        for start, stop in zip(begin.tolist(), end.tolist(), strict=True)
    ]


def _launched_in_steps(view: RankView, length: NDArray[np.int64]) -> list[Usage]:
    """Account for all steps at once: the work of each step is shifted so far that it overlaps no other step's."""
    events, count = view.trace.events, len(length)
    rows = np.flatnonzero(one_of(view.kind, DEVICE_WORK) & (events.step >= 0))
    start = events.start[rows]
    finish = start + events.duration[rows]
    first, last = (int(start.min()), int(finish.max())) if len(rows) else (0, 0)
    room = last - first + 2
    kind, step = view.kind[rows], events.step[rows].astype(np.int64)
    if room * count > np.iinfo(np.int64).max:  # a corrupt time: account for the steps one by one
        return [_one_step(start, finish, np.where(step == n, kind, 0), int(span)) for n, span in enumerate(length)]
    shift = step * room - first
    start, finish = start + shift, finish + shift
    of_kind = [np.flatnonzero(kind == int(k)) for k in DEVICE_WORK]
    sets = [intervals.union(start[mine], finish[mine]) for mine in of_kind]
    parts = (*sets[:2], *_apart(*sets))
    lengths = [np.bincount(s[0] // room, s[1] - s[0], count).astype(np.int64).tolist() for s in parts]
    return [_of_lengths(*own) for own in zip(length.tolist(), *lengths, strict=True)]


def _one_step(start: NDArray[np.int64], finish: NDArray[np.int64], kind: NDArray[np.int8], span: int) -> Usage:
    compute, comm, copy, fused = (intervals.union(start[kind == k], finish[kind == k]) for k in DEVICE_WORK)
    return usage(compute, comm, copy, fused, span=span)
