"""Duration and event counts of the recorded steps of one rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank.host_time import RankHostTime
from rankscope.analysis.rank.operators import outermost
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.causes import allocator, host_sync, recompile
from rankscope.records.rank_window import StepColumns
from rankscope.trace.columns import Category
from rankscope.trace.names import DEVICE_WORK, Kind

__all__ = ["compute_operators", "step_columns"]

I64 = NDArray[np.int64]


def step_columns(window: WindowResult, column: int) -> StepColumns:
    """Return the steps of the rank in one column of a window."""
    view = window.views[column]
    events, steps, host = view.trace.events, view.trace.steps, RankHostTime(view)
    usage = window.steps[column]
    in_step = events.step >= 0
    copies = np.flatnonzero((view.kind == Kind.COPY) & in_step)
    compiling = np.flatnonzero(host.named_events(recompile.EVENTS) & in_step)

    def per_step(rows: I64) -> list[int]:
        return [int(n) for n in np.bincount(events.step[rows], minlength=len(steps)).tolist()]

    return StepColumns(
        number=[max(int(n), 0) for n in steps.number.tolist()],
        length_ns=[int(n) for n in window.lengths[column].tolist()],
        compute_ns=[u.compute + u.fused for u in usage],
        communication_ns=[u.comm for u in usage],
        exposed_ns=[u.exposed_comm for u in usage],
        copy_ns=[u.exposed_copy for u in usage],
        input_ns=[int(n) for n in window.idle[column].step_inputs.tolist()],
        launches=per_step(_launched(view)),
        syncs=per_step(np.flatnonzero(host.named_calls(host_sync.CALLS) & in_step)),
        allocations=per_step(np.flatnonzero(host.named_calls(allocator.CALLS) & in_step)),
        compilations=per_step(outermost(view, compiling)),
        copies=per_step(copies),
        copied_bytes=[
            int(n)
            for n in np.bincount(events.step[copies], np.maximum(events.bytes[copies], 0), len(steps)).astype(np.int64)
        ],
    )


def compute_operators(view: RankView) -> I64:
    """Without a device: return the operators of recorded steps that compute and that no other operator calls."""
    events = view.trace.events
    chosen = (view.kind == Kind.COMPUTE) & (events.category == Category.CPU_OP) & view.chain & (events.step >= 0)
    return outermost(view, np.flatnonzero(chosen))


def _launched(view: RankView) -> I64:
    events = view.trace.events
    if view.device:
        return np.flatnonzero(one_of(view.kind, DEVICE_WORK) & (events.step >= 0))
    calls = view.trace.collectives.event
    return np.concatenate((compute_operators(view), calls[events.step[calls] >= 0].astype(np.int64)))
