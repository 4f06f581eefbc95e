"""Selection of events of a trace, together with everything that refers to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import RankTrace

__all__ = ["distinct", "one_of", "take"]

_FEW = 16
"""Number of different values up to which they are found one after the other."""


def take(trace: RankTrace, rows: NDArray[np.int64]) -> RankTrace:
    """Return the trace with these events, in this order, which must be that of their starts.

    Launches and calls that refer to other events are left out too.
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


def one_of(codes: NDArray[Any], chosen: Iterable[int]) -> NDArray[np.bool_]:
    """Return whether each code (a kind, a category, a thread) is among the chosen few; each is compared.

    ``np.isin`` would sort the codes first, and an access to a table takes as long as eight comparisons.
    """
    found = np.zeros(len(codes), np.bool_)
    for code in chosen:
        found |= codes == int(code)
    return found


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Return what ``np.unique`` returns, which sorts or hashes all values. Here each pass removes one of a few values
    (devices, streams, threads)."""
    found, left = list[Any](), values
    while len(left) and len(found) < _FEW:
        found.append(left[0])
        left = left[left != left[0]]
    return np.unique(values) if len(left) else np.array(sorted(found), values.dtype)
