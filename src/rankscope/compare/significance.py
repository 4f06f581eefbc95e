"""Multiple testing: among many rows some seem significant by chance alone, so significance is decided for all
together."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.records.diff import DiffRow
from rankscope.statistics.chance import discoveries

__all__ = ["LEAST_SHARE", "LEVEL", "keep_significant"]

LEVEL = 0.01
"""Share of the reported rows that may be due to chance."""
LEAST_SHARE = 0.005
"""Share of the step. Rows with less time are tested separately, so that many small ones do not hide a large one. A row
that takes no more than that cannot have changed by more, and is not listed."""


def keep_significant(rows: Sequence[DiffRow], step_ms: float) -> None:
    """Keep ``told`` only for rows that are significant among all rows of their size (Benjamini and Hochberg, 1995).

    Args:
        rows: of one difference. Those without a ``chance`` are left unchanged.
        step_ms: the longer step of both runs.
    """
    least = LEAST_SHARE * step_ms
    for large in (True, False):
        own = [row for row in rows if row.chance is not None and (_size(row) >= least) == large]
        for row, found in zip(own, discoveries([row.chance or 0.0 for row in own], LEVEL), strict=True):
            row.told = row.told and found


def _size(row: DiffRow) -> float:
    return max(row.before or 0.0, row.after or 0.0)
