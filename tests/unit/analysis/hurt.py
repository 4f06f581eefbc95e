"""Ways to damage the traces of a simulated job, and the truth about its calls.

A simulated call has the same correlation id on all its ranks, which no analysis compares across ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView
from rankscope.trace.columns import RankTrace

__all__ = ["keep", "lose", "renumber", "true_calls"]


def lose(trace: RankTrace, rows: Sequence[int]) -> None:
    """Drop the records of communication kernels, by their rows in ``collectives``; their launches stay."""
    kept = np.ones(len(trace.events), np.bool_)
    kept[trace.collectives.event[list(rows)]] = False
    keep(trace, kept)


def keep(trace: RankTrace, kept: NDArray[np.bool_]) -> None:
    """Leave out all other events, and the calls that they are."""
    events, calls = trace.events, trace.collectives
    place = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    chosen = np.flatnonzero(kept[calls.event])
    for column in fields(events):
        setattr(events, column.name, getattr(events, column.name)[kept])
    events.launch = place[events.launch].astype(np.int32)
    for column in fields(calls):
        values = getattr(calls, column.name)
        setattr(
            calls, column.name, [values[k] for k in chosen.tolist()] if isinstance(values, list) else values[chosen]
        )
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
