"""Some of the events of a trace, with everything that points at them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import RankTrace

__all__ = ["one_of", "take"]


def take(trace: RankTrace, rows: NDArray[np.int64]) -> RankTrace:
    """The trace with these events, in this order.

    Launches and calls of events that are left out are left out too. The order has to be that of starts.
    """
    events, calls = trace.events, trace.collectives
    place = np.full(len(events), -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    kept = replace(events, **{f.name: getattr(events, f.name)[rows] for f in fields(events)})
    kept.launch = np.where(kept.launch >= 0, place[kept.launch], np.int32(-1))
    mine = np.flatnonzero(place[calls.event] >= 0)
    mine = mine[np.argsort(place[calls.event[mine]], kind="stable")]

    def chosen(column: Any) -> Any:
        return [column[i] for i in mine.tolist()] if isinstance(column, list) else column[mine]

    called = replace(calls, **{f.name: chosen(getattr(calls, f.name)) for f in fields(calls)})
    called.event = place[called.event]
    return replace(trace, events=kept, collectives=called)


def one_of(codes: NDArray[np.int8], chosen: Iterable[int]) -> NDArray[np.bool_]:
    """Which codes (a kind, a category, a label) are among the chosen ones: ``np.isin`` sorts them first."""
    table = np.zeros(256, np.bool_)
    table[list(chosen)] = True
    return np.asarray(table[codes])
