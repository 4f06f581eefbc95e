"""Why a rank's device (or, without one, its training thread) does no compute. See ``model.RankIdle`` for the terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis import intervals
from rankscope.analysis.collectives import Matched
from rankscope.analysis.intervals import Spans
from rankscope.analysis.overlap import step_bounds
from rankscope.analysis.view import RankView
from rankscope.analysis.waits import Waits

__all__ = ["IdleTime", "idle_time", "step_inputs"]


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Lengths over the recorded window, ns. Together with compute they fill the window."""

    waiting: int
    transfer: int
    inputs: int
    host: int
    copy: int


def idle_time(view: RankView, column: int, matched: Matched, waits: Waits) -> IdleTime:
    """Split what is not compute: waiting for peers, transfer, copies, the data loader, any other host reason.

    A call that was not matched counts as transfer, since nothing is known of the others' arrival.
    """
    compute, comm, copy = _busy(view)
    mine = matched.of(column)
    events = view.trace.collectives.event[matched.row[mine]]
    start = view.trace.events.start[events]
    until = start + np.round(waits.wait[mine]).astype(np.int64)
    exposed = intervals.subtract(comm, compute)
    waiting = intervals.measure(intervals.intersect(exposed, intervals.union(start, until)))
    copying = intervals.measure(intervals.subtract(intervals.subtract(copy, compute), comm))
    nothing = _nothing(view)
    inputs = intervals.measure(intervals.intersect(nothing, view.fetch))
    return IdleTime(
        waiting=waiting,
        transfer=intervals.measure(exposed) - waiting,
        inputs=inputs,
        host=intervals.measure(nothing) - inputs,
        copy=copying,
    )


def step_inputs(view: RankView) -> NDArray[np.int64]:
    """What of :attr:`IdleTime.inputs` lies in each recorded step, ns."""
    return intervals.cover(intervals.intersect(_nothing(view), view.fetch), *step_bounds(view))


def _busy(view: RankView) -> tuple[Spans, Spans, Spans]:
    compute, comm, copy = (intervals.clip(s, view.free, view.end) for s in (view.compute, view.comm, view.copy))
    return compute, comm, copy


def _nothing(view: RankView) -> Spans:
    """When nothing at all runs."""
    busy = _busy(view)
    union = intervals.union(np.concatenate([b[0] for b in busy]), np.concatenate([b[1] for b in busy]))
    return intervals.complement(union, view.free, view.end)
