"""Ranks without a device that run more operators than other ranks of their role: counted, then timed.

Only operators that a rank calls more often than its peers in a step count. On a busy or slow host the same operators
take longer, which is never more work here; and 8 ms of additional products in a segment of 40 show, which are too few
for a comparison of segments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.self_time import self_time
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.stragglers.candidates import Candidate, Window
from rankscope.analysis.stragglers.statistics import above
from rankscope.causes import extra_compute
from rankscope.statistics.medians import median_along
from rankscope.trace.columns import Category
from rankscope.trace.names import Kind

__all__ = ["more_operators"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def more_operators(window: Window) -> list[Candidate]:
    """Return one candidate for each rank that runs more operators over all steps."""
    calls, ns, names = _table(window)
    beyond = np.full(ns.shape, np.nan)
    for column, team in enumerate(window.plan.peers):
        peers = [p for p in team if p != column]
        if peers:
            more = np.maximum(calls[column] - median_along(calls[peers], axis=0)[0], 0.0)
            longer = ns[column] - median_along(ns[peers], axis=0)[0]
            # No more than the additional calls take at the mean: one call more is not why hundreds take longer.
            most = ns[column] * np.divide(more, calls[column], out=np.zeros_like(more), where=more > 0)
            beyond[column] = np.clip(longer, 0.0, most)
    always, mean, error = above(beyond.sum(axis=2))
    return [
        _candidate(window, column, names[column], beyond[column].sum(axis=0), float(error[column] / mean[column]))
        for column in np.flatnonzero(always).tolist()
    ]


def _table(window: Window) -> tuple[F64, F64, list[dict[int, int]]]:
    """Return calls and self time (ns) by rank, step and operator, each of shape (R, S, N), and per rank the operators'
    numbers by the codes of their names."""
    codes: dict[str, int] = {}
    steps, names, rows = window.steps.common, list[dict[int, int]](), list[tuple[I64, I64, F64]]()
    for column, view in enumerate(window.views):
        (called, took), events = _operators(view), view.trace.events
        own = {
            code: codes.setdefault(view.trace.strings[code], len(codes)) for code in set(events.name[called].tolist())
        }
        names.append(own)
        number = window.steps.of_rank(view, column)[events.step[called]]
        step = np.searchsorted(steps, number)
        known = np.isin(number, steps)
        operator = np.array([own[code] for code in events.name[called].tolist()], np.int64)
        rows.append((step[known].astype(np.int64), operator[known], took[known]))
    shape = (len(rows), len(steps), max(len(codes), 1))
    calls, ns = np.zeros(shape), np.zeros(shape)
    for column, (step, operator, took) in enumerate(rows):
        np.add.at(calls[column], (step, operator), 1.0)
        np.add.at(ns[column], (step, operator), took)
    return calls, ns, names


def _operators(view: RankView) -> tuple[I64, F64]:
    """Return the computing operators of the recorded steps, and the self time of each, ns."""
    events = view.trace.events
    every = np.flatnonzero(events.category == Category.CPU_OP)
    own = self_time(events.tid[every], events.start[every], events.duration[every])
    mine = (view.chain & (view.kind == Kind.COMPUTE) & (events.step >= 0))[every]
    return every[mine], own[mine]


def _candidate(window: Window, column: int, names: dict[int, int], beyond: F64, error: float) -> Candidate:
    """Return the candidate without the time (ns) of each operator beyond its peers'.

    It is taken off evenly where the operator runs, with what it calls: its self time is not in one piece.
    """
    events = window.views[column].trace.events
    rows, _ = _operators(window.views[column])
    edges, less = window.host_time(column, intervals.EMPTY)
    for code, operator in names.items():
        if beyond[operator] > 0:
            mine = rows[events.name[rows] == code]
            spans = intervals.union(events.start[mine], events.end[mine])
            _, inside = window.host_time(column, spans)
            less += inside * (beyond[operator] / max(float(inside.sum()), beyond[operator]))
    less = np.minimum(less, window.replay.graph.work[edges])
    return Candidate(column, extra_compute.CAUSE.name, edges, less, float(beyond.sum()), error)
