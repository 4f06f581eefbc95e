"""Ways to hurt a simulated job's traces, and the truth about its calls.

A simulated call has the same correlation id on all its ranks, which no analysis compares across ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView
from rankscope.trace.columns import RankTrace

__all__ = ["lose", "renumber", "true_calls"]


def lose(trace: RankTrace, rows: Sequence[int]) -> None:
    """Drop the records of communication kernels, by their rows in ``collectives``; their launches stay."""
    events, calls = trace.events, trace.collectives
    gone = np.zeros(len(events), np.bool_)
    gone[calls.event[list(rows)]] = True
    place = np.append(np.where(gone, -1, np.cumsum(~gone) - 1), -1)
    for column in fields(events):
        setattr(events, column.name, getattr(events, column.name)[~gone])
    events.launch = place[events.launch].astype(np.int32)
    kept = np.setdiff1d(np.arange(len(calls)), list(rows))
    for column in fields(calls):
        values = getattr(calls, column.name)
        chosen = [values[k] for k in kept.tolist()] if isinstance(values, list) else values[kept]
        setattr(calls, column.name, chosen)
    calls.event = place[calls.event].astype(np.int32)


def renumber(trace: RankTrace, by: int) -> None:
    """Count the rank's steps differently."""
    trace.steps.number = trace.steps.number + by


def true_calls(views: Sequence[RankView], matched: Matched) -> list[set[int]]:
    """Per matched call the correlation ids of its members: one each where the match is right."""
    found: list[set[int]] = [set() for _ in range(len(matched))]
    for column, view in enumerate(views):
        mine = matched.of(column)
        ids = view.trace.events.correlation[view.trace.collectives.event[matched.row[mine]]]
        for call, own in zip(matched.call[mine].tolist(), ids.tolist(), strict=True):
            found[call].add(own)
    return found
