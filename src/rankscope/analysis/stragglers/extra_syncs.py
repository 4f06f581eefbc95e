"""Ranks that synchronise with their device more often than others: ``.item()`` and similar calls in the hot path.

The duration of such a wait shows how far the device is behind, and nothing about the code: a peer that reads its loss
once a step waits as long in that one call. Calls are therefore counted. Their cost is the lead over the device that the
host loses each time; the replay determines it by letting the host continue at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.host_time import RankHostTime
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.stragglers.candidates import Candidate, Window
from rankscope.analysis.stragglers.statistics import above
from rankscope.causes import host_sync
from rankscope.statistics.medians import median_of_known, median_of_known_others
from rankscope.trace.columns import Category
from rankscope.trace.names import Kind

__all__ = ["Syncs", "extra", "extra_syncs"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Syncs:
    """The synchronisations of one rank, in order of time; one row each."""

    begin: I64
    """Begin in ns of the rank's own clock: that of the surrounding operator if it runs nothing else on the device, else
    of the call; minus the interpreter's time before it."""
    end: I64
    kind: list[str]
    """Name of that operator or call."""
    step: I64
    """The job's number of the step."""


def extra_syncs(window: Window) -> list[Candidate]:
    """Return one candidate for each rank that synchronises significantly more often in its steps than those it is
    compared with."""
    numbers = [window.steps.of_rank(view, column) for column, view in enumerate(window.views)]
    own = [_syncs(view, number) for view, number in zip(window.views, numbers, strict=True)]
    steps = np.unique(np.concatenate(numbers))
    counts = np.stack([_counts(number, syncs, steps) for number, syncs in zip(numbers, own, strict=True)])
    more = counts - _usual(window, counts)
    always, mean, error = above(more)
    found = []
    for column in np.flatnonzero(always).tolist():
        more_often = extra(own[column], [own[c] for c in _others(window, column)])
        more_often &= np.isin(own[column].step, steps[~np.isnan(more[column])])
        spans = intervals.union(own[column].begin[more_often], own[column].end[more_often])
        if len(spans[0]):
            relative = float(error[column] / mean[column])
            found.append(_without(window, column, spans, relative))
    return found


def _others(window: Window, column: int) -> list[int]:
    """Other ranks of the same role, or all others with a device where there are none."""
    peers = [c for c in window.plan.peers[column] if c != column]
    return peers or [c for c, view in enumerate(window.views) if c != column and view.device]


def _usual(window: Window, counts: F64) -> F64:
    """Median of the counts of :func:`_others` for all ranks, shape (R, S); NaN where there is none."""
    found = np.full(counts.shape, np.nan)
    devices = [c for c, view in enumerate(window.views) if view.device]
    if devices and any(len(team) < 2 for team in window.plan.peers):
        found[:] = median_of_known(counts[devices].T)
        found[devices] = median_of_known_others(counts[devices].T).T
    for team in (team for team in window.plan.teams.values() if len(team) > 1):
        found[team] = median_of_known_others(counts[team].T).T
    return found


def _syncs(view: RankView, number: I64) -> Syncs:
    events = view.trace.events
    calls = np.flatnonzero(RankHostTime(view).named_calls(host_sync.CALLS) & (events.step >= 0))
    operators = np.flatnonzero(view.chain & (events.category == Category.CPU_OP))
    begin = events.start[operators]
    end = begin + events.duration[operators]
    called = events.start[calls]
    holds = np.flatnonzero(np.searchsorted(called, begin) < np.searchsorted(called, end))
    launched = events.launch[np.flatnonzero((view.kind == Kind.COMPUTE) & (events.launch >= 0))]
    busy = np.sort(events.start[launched], kind="stable")  # they are almost in order
    idle = np.searchsorted(busy, begin[holds]) == np.searchsorted(busy, end[holds])
    rows = np.concatenate((operators[holds[idle]], calls))
    rows = rows[np.lexsort((-events.duration[rows], events.start[rows]))]
    latest = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(events.end[rows])))[: len(rows)]
    rows = rows[events.start[rows] >= latest]
    before = _gaps(begin, end, events.start[rows])
    names = [view.trace.strings[name] for name in events.name[rows].tolist()]
    return Syncs(events.start[rows] - before, events.end[rows], names, number[events.step[rows]])


def _gaps(begin: I64, end: I64, times: I64) -> I64:
    """Interpreter time before each of these times, in ns, at most its median between operators.

    Args:
        begin: begins of the training threads' operators, ascending.
        end: ends of the same operators.
        times: begins of other events.
    """
    if not len(times):
        return times
    ended = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)))
    between = begin[1:] - ended[1:-1]
    between = between[between > 0]
    usual = int(np.median(between)) if len(between) else 0
    last = ended[np.searchsorted(begin, times)]
    return np.where(last <= times, np.minimum(times - np.maximum(last, times - usual), usual), 0).astype(np.int64)


def _counts(number: I64, syncs: Syncs, steps: I64) -> F64:
    """Number of synchronisations in each of the steps; NaN for a step that the rank did not record."""
    count = np.bincount(np.searchsorted(steps, syncs.step), minlength=len(steps)).astype(np.float64)
    count[~np.isin(steps, number)] = np.nan
    return count


def extra(own: Syncs, others: Sequence[Syncs]) -> NDArray[np.bool_]:
    """Mask of a rank's synchronisations that exceed the median number of the others in that step.

    Of each kind the first of a step are taken to be the extra ones: what all ranks do once a step is usually at its
    end.
    """
    theirs = [Counter(zip(o.step.tolist(), o.kind, strict=True)) for o in others]
    left: dict[tuple[int, str], int] = {}
    found = np.zeros(len(own.step), np.bool_)
    for place in reversed(range(len(own.step))):
        key = int(own.step[place]), own.kind[place]
        if key not in left:
            left[key] = int(np.median([count[key] for count in theirs]))
        left[key] -= 1
        found[place] = left[key] < 0
    return found


def _without(window: Window, column: int, spans: intervals.Spans, error: float) -> Candidate:
    """Build the candidate that removes the host's stops in these spans."""
    graph, events = window.replay.graph, window.views[column].trace.events
    edges, inside = window.host_time(column, spans)
    stops = graph.stops
    mine = np.flatnonzero(stops.owner == column)
    mine = mine[intervals.contains(spans, events.start[stops.event[mine]])]
    cut, free = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for asked, done in zip(stops.asked[mine].tolist(), stops.done[mine].tolist(), strict=True):
        into = np.arange(graph.first[done], graph.first[done + 1])
        own = graph.source[into] == asked
        cut.append(into[~own])
        free.append(into[own])
    return Candidate(
        column, "host_sync", edges, np.minimum(inside, graph.work[edges]), float(intervals.measure(spans)), error,
        np.concatenate(cut), np.concatenate(free),
    )  # fmt: skip
