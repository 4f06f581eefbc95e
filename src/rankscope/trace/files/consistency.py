"""Consistency check of columns that were read from a file, so that no analysis meets an invalid index."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rankscope.trace.columns import Category, RankTrace

__all__ = ["require_consistent"]


def require_consistent(trace: RankTrace) -> None:
    """Check lengths, indices and the order of time.

    Raises:
        ValueError: the columns are not those of a trace.
    """
    events, calls, steps = trace.events, trace.collectives, trace.steps
    rows = len(events)
    columns = [getattr(events, name) for name in events.__slots__]
    python = trace.python
    inside = (
        (python.name, 0, len(trace.strings)),
        (events.name, 0, len(trace.strings)),
        (events.shape, -1, len(trace.strings)),
        (events.category, 0, max(Category) + 1),
        (events.launch, -1, rows),
        (events.step, -1, len(steps)),
        (calls.event, 0, rows),
        (calls.group, -1, len(trace.groups)),
    )
    sound = (
        all(len(column) == rows for column in columns)
        and len({len(python.start), len(python.duration), len(python.name), len(python.tid)}) == 1
        and len({len(steps.number), len(steps.start), len(steps.duration)}) == 1
        and all(not len(values) or (values.min() >= least and values.max() < end) for values, least, end in inside)
        and bool((np.diff(events.start) >= 0).all())
        and all(not len(lengths) or lengths.min() >= 0 for lengths in (events.duration, steps.duration))
        and all(isinstance(g.name, str) and isinstance(g.description, str) for g in trace.groups)
        and all(_are_ranks(g.ranks) for g in trace.groups)
    )
    if not sound:
        raise ValueError("the columns do not fit together")


@lru_cache(maxsize=1 << 14)
def _are_ranks(members: tuple[int, ...]) -> bool:
    """The same for each member of a group, and checked once."""
    return all(rank.__class__ is int and rank >= 0 for rank in members)
