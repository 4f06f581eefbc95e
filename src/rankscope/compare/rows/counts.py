"""Numbers of events per step. They do not vary between runs of one program, so that any machine can compare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rankscope.compare.sides.side import Side
from rankscope.records.diff import DiffRow
from rankscope.records.rank_window import RankWindow

__all__ = ["COUNTS", "count_rows"]


def _calls(own: RankWindow, bytes_of: bool) -> list[int]:
    steps = np.zeros(len(own.steps.number), np.int64)
    place = np.array(own.calls.step, np.int64)
    weight = np.maximum(np.array(own.calls.bytes, np.int64), 0) if bytes_of else np.ones(len(place), np.int64)
    np.add.at(steps, place[place >= 0], weight[place >= 0])
    return [int(n) for n in steps.tolist()]


@dataclass(frozen=True, slots=True)
class Count:
    """One quantity to count."""

    unit: str
    values: Callable[[RankWindow], list[int]]
    """Returns the count for each recorded step of one rank."""
    rare: bool = False
    """It occurs in few steps, so that one step with it is a change if there was none."""


COUNTS: dict[str, Count] = {
    "launches": Count("count", lambda own: own.steps.launches),
    "syncs": Count("count", lambda own: own.steps.syncs),
    "collectives": Count("count", lambda own: _calls(own, bytes_of=False)),
    "collective bytes": Count("bytes", lambda own: _calls(own, bytes_of=True)),
    "copies": Count("count", lambda own: own.steps.copies),
    "copied bytes": Count("bytes", lambda own: own.steps.copied_bytes),
    "compilations": Count("count", lambda own: own.steps.compilations, rare=True),
    "allocations": Count("count", lambda own: own.steps.allocations),
}


def count_rows(before: Side, after: Side) -> list[DiffRow]:
    """Return a row for each of :data:`COUNTS`.

    A change is reported for a rank if all its steps in one run have more than any of its steps in the other.
    """
    return [row for name in COUNTS if (row := _row(name, before, after)) is not None]


def _row(name: str, before: Side, after: Side) -> DiffRow | None:
    count = COUNTS[name]
    ours, theirs = (_by_rank(side, count.values) for side in (before, after))
    shared = sorted(set(ours) & set(theirs))
    if not shared:
        return None
    significant = {rank: _apart(ours[rank], theirs[rank], count.rare) for rank in shared}
    change = {rank: float(np.mean(theirs[rank]) - np.mean(ours[rank])) for rank in shared}
    most = max(shared, key=lambda rank: (significant[rank], abs(change[rank])))
    return DiffRow(
        kind="count",
        name=name,
        unit=count.unit,
        before=float(np.mean(ours[most])),
        after=float(np.mean(theirs[most])),
        change=change[most],
        noise=0.0,
        told=significant[most],
        ranks=[rank for rank in shared if significant[rank]],
    )


def _apart(before: list[int], after: list[int], rare: bool) -> bool:
    if rare and 0 in (max(before), max(after)):
        return max(before) != max(after)
    return min(after) > max(before) or max(after) < min(before)


def _by_rank(side: Side, values: Callable[[RankWindow], list[int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for own in side.ranks:
        if own.incomplete is None and own.steps.number:
            found.setdefault(own.rank, []).extend(values(own))
    return found
