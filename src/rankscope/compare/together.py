"""Of many rows some show by chance alone what one of them would not: what is told of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.records.diff import DiffRow
from rankscope.statistics.chance import discoveries

__all__ = ["LEAST_SHARE", "LEVEL", "tell"]

LEVEL = 0.01
"""Share of the rows that are told which may be so by chance."""
LEAST_SHARE = 0.005
"""Of the step: rows of less time are judged apart, so that a crowd of small ones does not hide a large one. What takes
no more than that cannot have changed by more, and is not listed."""


def tell(rows: Sequence[DiffRow], step_ms: float) -> None:
    """Leave told what is also told with all rows of its size taken together (Benjamini and Hochberg, 1995).

    Args:
        rows: of one difference. Those without a ``chance`` stay as they are.
        step_ms: the longer step of both runs.
    """
    least = LEAST_SHARE * step_ms
    for large in (True, False):
        own = [row for row in rows if row.chance is not None and (_size(row) >= least) == large]
        for row, found in zip(own, discoveries([row.chance or 0.0 for row in own], LEVEL), strict=True):
            row.told = row.told and found


def _size(row: DiffRow) -> float:
    return max(row.before or 0.0, row.after or 0.0)
