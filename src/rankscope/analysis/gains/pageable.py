"""Copies to the device from pageable memory, in which the host waits; a copy from pinned memory returns at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.work_gains import MOST_RANKS, mean_gain_ms
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.trace.names import Kind

__all__ = ["pageable_ms", "without_pageable"]

F64 = NDArray[np.float64]


def pageable_ms(windows: Sequence[WindowResult]) -> float:
    """Return the gain of a step without these copies, ms. The windows must have been replayed."""
    known = [(w, w.replay) for w in windows if w.replay is not None and len(w.views) <= MOST_RANKS]
    return max(mean_gain_ms((r, r.gains(without_pageable(w, r.graph.work))) for w, r in known), 0.0)


def without_pageable(window: WindowResult, work: F64) -> F64:
    """Return the work per edge without these copies, on host and device. The window must have been replayed."""
    replay = window.replay
    assert replay is not None
    graph, plan = replay.graph, window.plan
    changed: F64 = work.copy()
    for column, view in enumerate(window.views):
        events = view.trace.events
        named = np.array(["Pageable -> Device" in text for text in view.trace.strings], np.bool_)
        pieces = np.flatnonzero((view.kind == Kind.COPY) & (events.launch >= 0) & named[events.name])
        if not len(pieces):
            continue
        waited = graph.stops.event[graph.stops.owner == column]
        # A host that waits for the copy in its call has no work there; else its time in the call is work to the replay.
        calls = np.setdiff1d(events.launch[pieces], waited)
        parts = (
            (Work.DEVICE, events.start[events.launch[pieces]], events.duration[pieces], replay.segments.device[column]),
            (Work.HOST, events.end[calls], events.duration[calls], replay.segments.host[column]),
        )
        for label, at, length, whole in parts:
            place = plan.segment_of(column, at)
            part = np.bincount(place, length, plan.size)
            kept = 1.0 - np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0).clip(0.0, 1.0)
            affected = np.flatnonzero((graph.owner == column) & (graph.label == label))
            changed[affected] *= kept[graph.segment[affected]]
    return changed
