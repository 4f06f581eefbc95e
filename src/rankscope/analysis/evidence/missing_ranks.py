"""Which ranks wait for a late rank, and which unrecorded ranks could have delayed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet

import numpy as np

from rankscope.analysis.rank.view import RankView
from rankscope.analysis.windows.analyse import WindowResult

__all__ = ["holds", "lost_partners"]


def holds(window: WindowResult) -> list[Counter[tuple[int, ...]]]:
    """For each rank, return the ranks of each group -> how long the others wait for it (mean over them), ns over the
    window."""
    matched, waits = window.matched, window.waits
    found: list[Counter[tuple[int, ...]]] = [Counter() for _ in window.views]
    calls = np.flatnonzero(~waits.early)
    if not len(calls):
        return found
    before = np.concatenate(([0.0], np.cumsum(waits.wait)))
    first, end = matched.first[calls], matched.first[calls + 1]
    waited = (before[end] - before[first]) / (end - first - 1)
    pair = waits.last[calls].astype(np.int64) * len(matched.channels) + matched.channel[calls]
    pairs, which = np.unique(pair, return_inverse=True)
    for number, ns in zip(pairs.tolist(), np.bincount(which.reshape(-1), waited).tolist(), strict=True):
        column, channel = divmod(number, len(matched.channels))
        if ns > 0:
            found[column][matched.channels[channel].ranks] += ns
    return found


def lost_partners(view: RankView, held: tuple[int, ...], absent: AbstractSet[int]) -> tuple[list[int], str]:
    """Return ranks without a trace in another group of this rank than the waiting one, and the smallest such group.

    In the waiting group itself a missing rank has no effect on waits: its delay comes after the last recorded arrival,
    and counts as transfer.
    """
    used = np.unique(view.trace.collectives.group)
    groups = [view.trace.groups[g] for g in used[used >= 0].tolist()]
    others = [g for g in groups if g.ranks and view.rank in g.ranks and g.ranks != held and absent & set(g.ranks)]
    if not others:
        return [], ""
    group = min(others, key=lambda g: len(g.ranks))
    some = ", ".join(map(str, group.ranks[:8])) + (", ..." if len(group.ranks) > 8 else "")
    return sorted(absent & set(group.ranks)), f"{group.title} [{some}]"
