"""Calls of a backend that works on the host (gloo, MPI), in a trace with a device: which events issued them.

Such a call runs on a thread of the backend. The training thread issues it by an operator of ``c10d`` and waits later;
in a trace with a device it is linked to that operator as a kernel is to its launch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import Category, Events

__all__ = ["issues_of"]

I64 = NDArray[np.int64]


def issues_of(events: Events, strings: list[str], calls: I64, records: I64) -> I64:
    """Return the row of the event that issued each call, -1 if a thread without device work did, or if unknown.

    Args:
        events: all columns, ``launch`` of device events included.
        strings: texts of the name codes.
        calls: rows of the backend's calls, in order of start.
        records: rows of ``record_param_comms`` that belong to no kernel.
    """
    found = np.full(len(calls), -1, np.int64)
    launching = np.unique(_thread(events)[events.launching])
    if not len(calls) or not len(launching):
        return found
    named = [c for c in np.unique(events.name).tolist() if strings[c].startswith("c10d::")]
    operators = np.flatnonzero((events.category == Category.CPU_OP) & np.isin(events.name, named))
    holds_kernel = _holds(events, operators, np.flatnonzero(events.launching))
    for several in (records, operators[~holds_kernel]):
        issues = several[np.argsort(events.start[several], kind="stable")]
        if len(issues) == len(calls) and (events.start[issues] <= events.start[calls]).all():
            found = issues  # the k-th call is the k-th that was issued
            break
    else:
        known = np.sort(np.concatenate((records, operators[~holds_kernel])))
        at = np.searchsorted(events.start[known], events.start[calls], side="right") - 1
        found = np.where(at >= 0, known[at.clip(0)], -1) if len(known) else found
    ours = np.isin(_thread(events)[found.clip(0)], launching)
    return np.where((found >= 0) & ours, found, -1)


def _thread(events: Events) -> I64:
    return events.pid * 1_000_003 + events.tid


def _holds(events: Events, outer: I64, inner: I64) -> NDArray[np.bool_]:
    """Return whether an event of ``inner`` begins within each of ``outer``, on its thread."""
    thread, result = _thread(events), np.zeros(len(outer), np.bool_)
    for one in np.unique(thread[outer]).tolist():
        begun, mine = events.start[inner[thread[inner] == one]], thread[outer] == one
        low = np.searchsorted(begun, events.start[outer[mine]])
        result[mine] = np.searchsorted(begun, events.end[outer[mine]]) > low
    return result
