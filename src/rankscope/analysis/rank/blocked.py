"""Waiting of the training thread of a CPU-only rank inside of an operator, instead of between two.

The wait for a functional collective is in ``wait_tensor``, which runs inside of the operator that needs the tensor. An
autograd function of the script may issue a call and return when its result is complete: the rest of its range is
waiting, if no operator runs in it.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.intervals import Spans
from rankscope.trace.columns import Category, RankTrace
from rankscope.trace.names import Kind

__all__ = ["blocked", "issuing"]

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

_ISSUE = re.compile(
    r"^c10d::(\w*(allreduce|allgather|reduce_scatter|alltoall|broadcast|reduce_|gather_|scatter_|barrier))"
    r"|^c10d::(send|recv_)"
    r"|^_c10d_functional::(all_reduce|all_gather|reduce_scatter|all_to_all|broadcast)"
)

EARLY_NS = 500_000
"""The range of a call on its backend's thread may end at most this long, and at most half of the wait, after the
waiting thread was woken."""


def issuing(trace: RankTrace, chain: Mask) -> I64:
    """Return the operators of the training threads that issue a call, in order of start; of nested ones the
    outermost."""
    events = trace.events
    named = np.array([bool(_ISSUE.search(s)) for s in trace.strings], np.bool_)
    rows = np.flatnonzero(chain & (events.category == Category.CPU_OP) & named[events.name])
    latest = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(events.end[rows])[:-1]))
    return rows[events.start[rows] >= latest[: len(rows)]]


def blocked(trace: RankTrace, chain: Mask, kind: NDArray[np.int8]) -> Spans:
    """Return the time in which the training threads wait inside of operators, own clock."""
    events = trace.events
    waits = (kind == Kind.WAIT) & chain
    recorded = intervals.union(events.start[waits], events.end[waits])
    silent = _in_silence(trace, chain, kind, recorded)
    return intervals.union(np.concatenate((recorded[0], silent[0])), np.concatenate((recorded[1], silent[1])))


def _in_silence(trace: RankTrace, chain: Mask, kind: NDArray[np.int8], said: Spans) -> Spans:
    """Return the final parts of operators that issued a call and lasted until it had ended."""
    events, calls = trace.events, trace.collectives.event
    issues = issuing(trace, chain)
    if not len(issues) or not len(calls):
        return intervals.EMPTY
    issued = (
        issues[np.searchsorted(events.start[issues], events.start[calls], side="right") - 1]
        if len(issues) != len(calls)
        else issues
    )
    working = np.flatnonzero(chain & (kind == Kind.COMPUTE))
    start, stop, thread = events.start[working], events.end[working], events.tid[working]
    begin, end = events.end[issued], events.end[calls]
    least = end - np.minimum(EARLY_NS, (end - begin) // 2)
    # Those around an issue have begun before it, and are not before the first that ends late enough.
    first = np.searchsorted(np.maximum.accumulate(stop), least)
    last = np.searchsorted(start, events.start[issued], side="right")
    until = np.minimum(end, 0)
    inner = np.ones(len(working), np.bool_)
    for call in np.flatnonzero(first < last).tolist():
        near = slice(first[call], last[call])
        around = (stop[near] >= least[call]) & (thread[near] == events.tid[issued[call]])
        inner[near] &= ~around
        until[call] = min(end[call], stop[near][around].max(initial=0))
    late = until > begin
    waiting = intervals.union(begin[late], until[late])
    # Operators that run inside are work; a recorded wait has a range of its own.
    busy = intervals.union(events.start[working[inner]], events.end[working[inner]])
    waiting = intervals.subtract(waiting, busy)
    explicit = intervals.cover(said, waiting[0], waiting[1]) > 0
    return waiting[0][~explicit], waiting[1][~explicit]
