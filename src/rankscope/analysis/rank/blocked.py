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
    begins, ends = [], []
    inner = np.ones(len(working), np.bool_)
    for call, issue in zip(calls.tolist(), issued.tolist(), strict=True):
        begin, end = int(events.end[issue]), int(events.end[call])
        around = (
            (events.start[working] <= events.start[issue])
            & (events.end[working] >= end - min(EARLY_NS, (end - begin) // 2))
            & (events.tid[working] == events.tid[issue])
        )
        inner &= ~around
        until = min(end, int(events.end[working[around]].max(initial=0)))
        if until > begin:
            begins.append(begin)
            ends.append(until)
    waiting = intervals.union(np.array(begins, np.int64), np.array(ends, np.int64))
    # Operators that run inside are work; a recorded wait has a range of its own.
    busy = intervals.union(events.start[working[inner]], events.end[working[inner]])
    waiting = intervals.subtract(waiting, busy)
    explicit = intervals.cover(said, waiting[0], waiting[1]) > 0
    return waiting[0][~explicit], waiting[1][~explicit]
