"""Missing parts of the traces of a window, and the ranks that lost too much to be compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.analysis.rank.losses import Losses, find_losses
from rankscope.analysis.rank.trim import covers_less
from rankscope.statistics.medians import median_of_others
from rankscope.trace.columns import RankTrace

__all__ = ["MOST_LOST", "too_much_lost", "what_is_missing"]

MOST_LOST = 0.05
"""Share of the device records by which a rank may have lost more than its peers. Beyond it the peers seem slower by
more than the smallest cost that is ever reported (5 % of the step)."""


def what_is_missing(traces: Sequence[RankTrace], losses: Sequence[Losses]) -> dict[int, str]:
    """Return rank -> what is missing from its trace, in words: device records, or the end of the window."""
    found: dict[int, str] = {}
    for trace, own, early in zip(traces, losses, covers_less(traces), strict=True):
        words = [w for w in (own.words() if own.lost else None, early) if w]
        if words and trace.rank is not None:
            found[trace.rank] = "; ".join(words)
    return found


def too_much_lost(traces: Sequence[RankTrace]) -> set[int]:
    """Return the ranks that lost so much more than others, in the compared steps, that a comparison would show the
    losses."""
    share = {t.rank: own.share for t, own in zip(traces, find_losses(traces), strict=True) if t.rank is not None}
    if not share:
        return set()
    own = np.array(list(share.values()))
    usual = median_of_others(own[None])[0] if len(own) > 1 else np.zeros(1)
    return {rank for rank, beyond in zip(share, (own - usual).tolist(), strict=True) if beyond > MOST_LOST}
