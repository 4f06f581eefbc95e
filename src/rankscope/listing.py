"""Numbers of ranks as text, for messages and reports."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["some_ranks"]


def some_ranks(ranks: Sequence[int], most: int = 8) -> str:
    """Return ranks as text, the first ``most`` of them: ``1, 2, 3 and 5 more``."""
    listed = ", ".join(map(str, ranks[:most]))
    return f"{listed} and {len(ranks) - most} more" if len(ranks) > most else listed
