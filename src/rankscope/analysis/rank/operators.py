"""Operators that launched kernels, and operators that no other operator calls."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank.view import RankView
from rankscope.trace.columns import Category

__all__ = ["launching_operators", "outermost"]

I64 = NDArray[np.int64]


def launching_operators(view: RankView, rows: I64, *, with_shapes: bool = False) -> I64:
    """Find the operator that launched each kernel, as a row of the events; -1 if the trace does not show it.

    Args:
        view: the rank.
        rows: rows of the kernels.
        with_shapes: consider only operators whose input shapes were recorded.
    """
    events = view.trace.events
    mask = (events.category == Category.CPU_OP) & (events.external_id >= 0)
    if with_shapes:
        mask &= events.shape >= 0
    operators = np.flatnonzero(mask)
    if not len(operators):
        return np.full(len(rows), -1, np.int64)
    order = operators[np.argsort(events.external_id[operators], kind="stable")]
    wanted = events.external_id[rows]
    place = np.minimum(np.searchsorted(events.external_id[order], wanted), len(order) - 1)
    found = (events.external_id[order[place]] == wanted) & (wanted >= 0)
    return np.where(found, order[place], -1).astype(np.int64)


def outermost(view: RankView, rows: I64) -> I64:
    """Return those of some host events, given in order of start, that no other one of them on their thread contains."""
    events = view.trace.events
    kept = []
    thread = events.pid[rows] * 1_000_003 + events.tid[rows]
    for number in np.unique(thread).tolist():
        own = rows[thread == number]
        before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(events.end[own])[:-1]))
        kept.append(own[events.start[own] >= before])
    return np.sort(np.concatenate(kept)) if kept else rows
