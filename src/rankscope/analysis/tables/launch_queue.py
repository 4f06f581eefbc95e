"""How far the hosts run ahead of their devices: launches whose work has not begun (``records.rows.LaunchQueue``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.rows import LaunchQueue
from rankscope.trace.names import DEVICE_WORK

__all__ = ["launch_queues"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_NONE: I64 = np.empty(0, np.int64)


def launch_queues(windows: Sequence[WindowResult]) -> list[LaunchQueue]:
    """Return one row per rank with a device whose launches are known; windows of a rank are pooled."""
    known: dict[int, list[tuple[RankView, I64, I64]]] = defaultdict(list)
    for window in windows:
        for view in window.views:
            asked, begun = _asked(view) if view.device else (_NONE, _NONE)
            if asked.size:
                known[view.rank].append((view, asked, begun))
    return [_queue(rank, own) for rank, own in sorted(known.items())]


def _asked(view: RankView) -> tuple[I64, I64]:
    """Return the start of the launch and the start of the work, for all device work launched inside the window."""
    events = view.trace.events
    work = np.flatnonzero(one_of(view.kind, DEVICE_WORK) & (events.launch >= 0))
    asked = events.start[events.launch[work]]
    inside = asked >= view.start
    # A device clock that is slightly ahead of the host's shows work that begins before its launch.
    return asked[inside], np.maximum(events.start[work[inside]], asked[inside])


def _queue(rank: int, known: Sequence[tuple[RankView, I64, I64]]) -> LaunchQueue:
    length, outstanding, delays, starved = [], [], [], 0
    for view, asked, begun in known:
        delays.append(begun - asked)
        edges = np.concatenate((begun, asked))  # at equal times, begins of work precede launches
        change = np.repeat(np.array([-1, 1], np.int64), len(asked))
        order = np.argsort(edges, kind="stable")
        bounds = np.concatenate(([view.start], edges[order], [view.end])).clip(view.start, view.end)
        length.append(np.diff(bounds))
        outstanding.append(np.maximum(np.concatenate(([0], np.cumsum(change[order]))), 0))
        spans = (view.compute, view.comm, view.copy, intervals.union(asked, begun))
        taken = intervals.union(*(np.concatenate(part) for part in zip(*spans, strict=True)))
        starved += intervals.measure(intervals.complement(taken, view.start, view.end))
    lengths, levels = np.concatenate(length), np.concatenate(outstanding)
    return LaunchQueue(
        rank=rank,
        median_outstanding=_weighted_median(levels, lengths),
        max_outstanding=int(levels[lengths > 0].max(initial=0)),
        median_delay_us=float(np.median(np.concatenate(delays))) / 1e3,
        starved_pct=100.0 * starved / max(int(lengths.sum()), 1),
    )


def _weighted_median(values: I64, weights: I64) -> float:
    """Return the smallest value that the queue does not exceed for at least half of the time."""
    filled = np.cumsum(np.bincount(values, weights))
    return float(np.searchsorted(filled, filled[-1] / 2)) if len(filled) and filled[-1] else 0.0
