"""Host activity of a CPU-only rank: when it issued each call of the backend, and where it waited for one.

torch 2.13 records a gloo call as a range on a thread of the backend, without arguments; the issuing ``c10d::`` operator
is on the training thread, and the wait is not recorded. The wait is inferred: the training thread runs no operator, or
waits inside of one (``blocked``), and continues soon after a call of the backend ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.blocked import issuing
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.view import RankView, make_view
from rankscope.trace.columns import Category
from rankscope.trace.names import Kind

__all__ = ["cpu_gaps", "cpu_issues", "cpu_waits", "settle_ends"]

I64 = NDArray[np.int64]

LEAST_WAIT_NS = 100_000
"""A shorter gap between operators counts as time in Python."""

LATE_NS = 2_000_000
"""A thread that waited continues within this time after the call's end, or within half of its gap (on a loaded
machine)."""

EARLY_NS = 500_000
"""The range of a call on its backend's thread ends after the waiting thread was woken: 0.1 ms later on an idle machine,
more (up to half of the wait is accepted) if that thread has lost its core."""


def cpu_issues(view: RankView) -> I64:
    """Return when the training thread issued each communication call (own clock); the call's start if unknown."""
    events, calls = view.trace.events, view.trace.collectives
    start: I64 = events.start[calls.event].copy()
    issues: I64 = events.start[issuing(view.trace, view.chain)]
    if len(issues) == len(start) and bool((issues <= start).all()):
        return issues
    return start


def settle_ends(view: RankView) -> RankView:
    """End each call of a CPU backend when the thread that waited for it continued, if its range ends later.

    Otherwise the wait is not recognised, and waiting would count as work of the rank that waits. A call also ends when
    its thread begins the next one (:func:`_ended_late`).
    """
    events, calls = view.trace.events, view.trace.collectives
    if view.device or not len(calls):
        return view
    begin, resume = cpu_gaps(view)
    start, duration = events.start[calls.event], events.duration.copy()
    end = events.end[calls.event] - _ended_late(events.tid[calls.event], start, events.end[calls.event])
    duration[calls.event] = end - start
    for gap_begin, gap_resume in zip(begin.tolist(), resume.tolist(), strict=True):
        running = np.flatnonzero((start < gap_resume) & (end > gap_resume))
        if not len(running):
            continue
        row = running[np.argmin(end[running])]
        ended = end[(end > gap_begin) & (end <= gap_resume)]
        if len(ended) and gap_resume - ended.max() <= max(EARLY_NS, end[row] - gap_resume):
            continue  # a call that ended in this gap is the better explanation
        if end[row] - gap_resume <= max(EARLY_NS, (gap_resume - gap_begin) // 2):
            end[row] = gap_resume
            duration[calls.event[row]] = gap_resume - start[row]
    trimmed = replace(events, duration=duration)
    return make_view(replace(view.trace, events=trimmed), view.rank)


def _ended_late(thread: NDArray[np.integer[Any]], start: I64, end: I64) -> I64:
    """Return by how much the range of each call ends after its thread had begun the next call, ns.

    A pipeline sends and receives at once: the receipt then begins when the send has ended, whose range ends a little
    later, and the replay would let it begin when it was issued. Ranges that overlap for longer run at the same time.
    """
    order = np.lexsort((start, thread))
    later = np.zeros(len(start), np.int64)
    one, after = order[:-1], order[1:]
    over = end[one] - start[after]
    late = (thread[one] == thread[after]) & (over > 0) & (over <= EARLY_NS) & (over < start[after] - start[one])
    later[one[late]] = over[late]
    return later


def cpu_gaps(view: RankView) -> tuple[I64, I64]:
    """Return when the training thread runs no operator for longer than Python takes, outside the data loader.

    A gap is split where the thread issues a call within it: of two calls that are waited for in sequence, the second is
    issued when the first has ended.
    """
    events = view.trace.events
    running = view.chain & (events.category == Category.CPU_OP) & ~one_of(view.kind, (Kind.OTHER, Kind.WAIT))
    busy = intervals.subtract(intervals.union(events.start[running], events.end[running]), view.blocked)
    begin, resume = intervals.subtract(intervals.complement(busy, view.start, view.end), view.fetch)
    issued = events.start[issuing(view.trace, view.chain)]
    issued = issued[intervals.contains((begin, resume), issued)]
    begin, resume = np.sort(np.concatenate((begin, issued))), np.sort(np.concatenate((resume, issued)))
    long = resume - begin >= LEAST_WAIT_NS
    return begin[long], resume[long]


def cpu_waits(view: RankView) -> tuple[I64, I64, I64]:
    """Return the inferred waits of the training thread: (begin, resume, row in ``Collectives``), own clock.

    Time in the data loader is never a wait.
    """
    events, calls = view.trace.events, view.trace.collectives
    begin, resume = cpu_gaps(view)
    nothing = np.empty(0, np.int64)
    if not len(begin) or not len(calls):
        return nothing, nothing, nothing
    end = events.end[calls.event]
    order = np.argsort(end, kind="stable")
    at = np.searchsorted(end[order], resume, side="right") - 1
    row = order[at.clip(0)]
    late = resume - end[row]
    # A call issued inside the gap was issued before the thread began to wait.
    issues = np.sort(cpu_issues(view))
    before = np.searchsorted(issues, end[row], side="left") - 1
    begin = np.where(before >= 0, np.maximum(begin, issues[before.clip(0)]), begin)
    # A call that had ended before the gap began was not waited for in it.
    ok = (at >= 0) & (end[row] > begin) & (late <= np.maximum(LATE_NS, (resume - begin) // 2))
    return begin[ok], resume[ok], row[ok].astype(np.int64)
