"""One rank's communication calls in order, and its own work between them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import bus_bytes, element_bytes
from rankscope.analysis.matching.communicators import canonical
from rankscope.analysis.summary.texts import Texts
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.rank_window import CallColumns

__all__ = ["call_columns"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def call_columns(window: WindowResult, column: int, texts: Texts) -> CallColumns:
    """Return the calls that bound the segments of the rank in one column of a window (``replay.segments``)."""
    view, rows = window.views[column], window.plan.rows[column]
    calls, groups = view.trace.collectives, view.trace.groups
    table = CallColumns()
    for row in rows.tolist():
        kind, group = canonical(calls.kind[row]), int(calls.group[row])
        known = groups[group] if group >= 0 else None
        size = len(known.ranks) if known else 0
        unit = element_bytes(calls.dtype[row]) or -1
        sizes = [
            int(n) * unit if n >= 0 and unit > 0 else -1 for n in (calls.in_elements[row], calls.out_elements[row])
        ]
        moved = bus_bytes(kind, size, *(np.array([float(n)]) for n in sizes)) if min(sizes) >= 0 else None
        table.kind.append(texts.place(kind))
        table.group.append(texts.place(known.title if known else ""))
        table.size.append(size)
        table.dtype.append(texts.place(calls.dtype[row]))
        table.bytes.append(max(sizes))
        table.bus_bytes.append(int(moved[0]) if moved is not None else -1)
        table.step.append(int(view.trace.events.step[calls.event[row]]))
    if window.replay is not None:
        own = window.plan.shift[column] + np.arange(len(rows))
        table.host_ns = _whole(window.replay.segments.host[column, own])
        table.device_ns = _whole(window.replay.segments.device[column, own])
    if len(window.matched):
        table.wait_ns, table.transfer_ns = _times(window, column, rows)
    return table


def _times(window: WindowResult, column: int, rows: I64) -> tuple[list[int], list[int]]:
    """Return wait and transfer of each call, ns; 0 for those that no other rank recorded."""
    matched, waits = window.matched, window.waits
    mine = matched.of(column)
    order = mine[np.argsort(matched.row[mine], kind="stable")]
    place = np.minimum(np.searchsorted(matched.row[order], rows), max(len(order) - 1, 0))
    found = matched.row[order[place]] == rows if len(order) else np.zeros(len(rows), np.bool_)
    member = order[place] if len(order) else place
    if not found.any():
        return [0] * len(rows), [0] * len(rows)
    early = waits.early[matched.call[member]]
    return (
        _whole(np.where(found & ~early, waits.wait[member], 0.0)),
        _whole(np.where(found, waits.transfer[member], 0.0)),
    )


def _whole(values: F64) -> list[int]:
    return [int(v) for v in np.round(values).tolist()]
