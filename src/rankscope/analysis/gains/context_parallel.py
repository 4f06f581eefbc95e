"""Context parallel ranks that compute attention for unequally long, because a causal mask leaves less to the first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.faster import gain_ms
from rankscope.analysis.gains.parallel_groups import groups_named, is_context
from rankscope.analysis.gains.work_gains import group_shares, less_device_work, placed_kernels, priced
from rankscope.analysis.operators.groups import ATTENTION, group_of
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.stragglers.statistics import confidence, mean_error
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.changes import UnevenAttention

__all__ = ["evened", "uneven_attention"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

UNEVEN = 1.05
"""Ratio of the longest rank's time to the mean from which on sharding the sequence otherwise is worthwhile."""


def uneven_attention(windows: Sequence[WindowResult]) -> UnevenAttention | None:
    """Return the most uneven group; None without a group of such a name, or if its ranks are even up to scatter."""
    found = [one for window in priced(windows) for one in _groups(window)]
    if not found:
        return None
    group, times = max(found, key=lambda one: float(one[1].mean(axis=1).max() / one[1].mean()))
    mean = times.mean(axis=1)
    low, high = (gain_ms(windows, lambda w, work, part=part: evened(w, work, part)) for part in (0.5, 1.0))  # type: ignore[misc]
    return UnevenAttention(
        group=list(group),
        late=[rank for rank, own in zip(group, mean.tolist(), strict=True) if own > mean.mean()],
        longest_ms=float(mean.max()) / 1e6,
        mean_ms=float(mean.mean()) / 1e6,
        low_ms=low,
        high_ms=high,
    )


def evened(window: WindowResult, work: F64, part: float = 1.0) -> F64:
    """Return the work per edge if each rank computed attention for as long as the mean of its group, or came
    ``part`` of the way there."""
    assert window.replay is not None
    saved: list[F64 | None] = [None] * len(window.views)
    column = {view.rank: number for number, view in enumerate(window.views)}
    for group, times in _groups(window):
        mean = times.mean(axis=1)
        for rank, own in zip(group, mean.tolist(), strict=True):
            number = column[rank]
            share = group_shares(window.views[number], window, number, group_of, (ATTENTION,)).get(ATTENTION)
            if share is not None and own > 0:
                saved[number] = share * part * (1.0 - mean.mean() / own)
    return less_device_work(window.replay, work, saved)


def _groups(window: WindowResult) -> list[tuple[tuple[int, ...], F64]]:
    """Return the uneven groups of which every rank was recorded, and the attention of each rank and step, ns."""
    columns = {view.rank: number for number, view in enumerate(window.views)}
    found = []
    for group in groups_named(window, is_context):
        if not set(group) <= columns.keys() or not all(window.views[columns[r]].device for r in group):
            continue
        steps = min(window.views[columns[rank]].steps for rank in group)
        times = np.array([_attention(window, columns[rank])[:steps] for rank in group])
        if steps < 2 or not (times.mean(axis=1) > 0).all():
            continue
        over = times[times.mean(axis=1).argmax()] / times.mean(axis=0)
        if over.mean() - confidence(len(over)) * mean_error(over) > UNEVEN:
            found.append((group, times))
    return found


def _attention(window: WindowResult, column: int) -> F64:
    """Return the time of a rank's attention kernels in each of its steps, ns."""
    view: RankView = window.views[column]
    kernels, operators, _, length, _ = placed_kernels(view, window, column)
    events, strings = view.trace.events, view.trace.strings
    pairs = np.stack((np.where(operators >= 0, events.name[operators.clip(0)], -1), events.name[kernels]))
    kinds, which = np.unique(pairs, axis=1, return_inverse=True)
    is_attention = [group_of(strings[o] if o >= 0 else "", strings[k]) == ATTENTION for o, k in kinds.T.tolist()]
    mine = np.array(is_attention, np.bool_)[which.reshape(-1)] if len(kernels) else np.zeros(0, np.bool_)
    return np.bincount(events.step[kernels[mine]], length[mine], view.steps).astype(np.float64)
