"""Counts and numbers of ranks as text, for messages and reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

__all__ = ["counted", "named_ranks", "some_ranks"]

_RANGE = 3
"""So many consecutive ranks are written as a range."""
_REGULAR = 5
"""So many ranks at equal distances are written as the first two, the last one and the distance."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is one: ``1 run``, ``3 runs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def some_ranks(ranks: Iterable[int], most: int = 8) -> str:
    """Return ranks in order as text, the first ``most`` ranges of them: ``1, 4-7 and 5 more``. Ranks at equal distances
    are written as ``3 to 1019, every 8th``."""
    ordered = sorted(set(ranks))
    if found := _regular(ordered):
        return found
    runs = _runs(ordered)
    listed = ", ".join(text for text, _ in runs[:most])
    left = sum(count for _, count in runs[most:])
    return f"{listed} and {left:,} more" if left else listed


def named_ranks(ranks: Iterable[int], most: int = 8) -> str:
    """Return ``rank 1``, or ``ranks 0-3, 7``."""
    unique = set(ranks)
    return f"{'rank' if len(unique) == 1 else 'ranks'} {some_ranks(unique, most)}"


def _regular(ordered: Sequence[int]) -> str:
    """Return ranks at equal distances, such as those of one place on every host; empty for others."""
    if len(ordered) < _REGULAR:
        return ""
    distances = {later - earlier for earlier, later in pairwise(ordered)}
    distance = distances.pop()
    return "" if distances or distance == 1 else f"{ordered[0]} to {ordered[-1]}, every {_ordinal(distance)}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _runs(ordered: Sequence[int]) -> list[tuple[str, int]]:
    """Return each range or single rank as text, and how many ranks it stands for."""
    found: list[tuple[str, int]] = []
    start = 0
    for index, rank in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != rank + 1:
            run = ordered[start : index + 1]
            long = len(run) >= _RANGE
            found += [(f"{run[0]}-{run[-1]}", len(run))] if long else [(str(one), 1) for one in run]
            start = index + 1
    return found
