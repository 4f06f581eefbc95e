"""Counts and numbers of ranks as text, for messages and reports."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["counted", "some_ranks"]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is one: ``1 run``, ``3 runs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def some_ranks(ranks: Sequence[int], most: int = 8) -> str:
    """Return ranks as text, the first ``most`` of them: ``1, 2, 3 and 5 more``."""
    listed = ", ".join(map(str, ranks[:most]))
    return f"{listed} and {len(ranks) - most} more" if len(ranks) > most else listed
