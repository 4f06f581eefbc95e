"""Compute of one rank's steps by kind: launching operator, its input shapes, module, kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.modules import modules_of
from rankscope.analysis.rank.operators import launching_operators
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.summary.steps import compute_operators
from rankscope.analysis.summary.texts import Texts, kernel_name, operator_name
from rankscope.records.rank_window import WorkColumns
from rankscope.trace.names import Kind

__all__ = ["work_columns"]

I64 = NDArray[np.int64]


def work_columns(view: RankView, texts: Texts) -> WorkColumns:
    """Return a row for each kind of compute and step, in order of kinds, then of steps."""
    events = view.trace.events
    if view.device:
        rows = np.flatnonzero(one_of(view.kind, (Kind.COMPUTE, Kind.FUSED)) & (events.step >= 0))
        length = events.duration[rows]
    else:
        rows = compute_operators(view)
        length = events.duration[rows] - intervals.cover(view.blocked, events.start[rows], events.end[rows])
    if not len(rows):
        return WorkColumns()
    kinds, kind = _kinds(view, rows, texts)
    beside = intervals.cover(view.comm, events.start[rows], events.end[rows]) > 0
    step = events.step[rows].astype(np.int64)
    table = WorkColumns()
    order = np.lexsort((length, step, kind))
    cuts = np.flatnonzero(np.diff(kind[order]) | np.diff(step[order])) + 1
    for part in np.split(order, cuts):
        operator, shapes, name, module = kinds[kind[part[0]]]
        alone = length[part][~beside[part]]  # sorted by duration
        for column, value in (
            (table.operator, operator),
            (table.shapes, shapes),
            (table.name, name),
            (table.step, int(step[part[0]])),
            (table.count, len(part)),
            (table.total_ns, int(length[part].sum())),
            (table.alone, len(alone)),
            (table.alone_ns, int(alone.sum())),
            (table.alone_median_ns, int(alone[len(alone) // 2]) if len(alone) else 0),
            (table.module, module),
        ):
            column.append(value)
    if max(table.module) < 0:
        table.module = []
    return table


WorkKind = tuple[int, int, int, int]
"""Operator, shapes, kernel, module: indices of texts."""


def _kinds(view: RankView, rows: I64, texts: Texts) -> tuple[list[WorkKind], I64]:
    """Return operator, shapes, name and module of each kind as indices of texts, and the kind of each row."""
    events, strings = view.trace.events, view.trace.strings
    operators = launching_operators(view, rows) if view.device else rows
    known = operators >= 0
    module, modules = modules_of(view, operators)
    said = np.stack(
        (
            np.where(known, events.name[operators], -1),
            np.where(known, events.shape[operators], -1),
            events.name[rows] if view.device else np.full(len(rows), -1),
            module,
        )
    )
    unique, inverse = np.unique(said, axis=1, return_inverse=True)
    places: dict[WorkKind, int] = {}
    numbers = [
        places.setdefault(
            (
                texts.place(operator_name(strings[operator]) if operator >= 0 else ""),
                texts.place(strings[shapes] if shapes >= 0 else ""),
                texts.place(kernel_name(strings[name]) if name >= 0 else ""),
                texts.place(modules[place] if place >= 0 else ""),
            ),
            len(places),
        )
        for operator, shapes, name, place in unique.T.tolist()
    ]
    return list(places), np.array(numbers, np.int64)[inverse.reshape(-1)]
