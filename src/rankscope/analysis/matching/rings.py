"""Distinguish point-to-point calls between equal ranks (ring attention, halo exchange) from those of a pipeline.

In a pipeline the first and the last stage have one neighbour and the others two, so that the numbers of sends and
receives differ between ranks; of two stages, one sends first and the other receives first. Where all ranks send and
receive equally often, they do the same work at the same time and can be compared with each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.matching.communicators import canonical
from rankscope.analysis.matching.pair_clocks import ODDS
from rankscope.analysis.rank.view import RankView

__all__ = ["pipeline_channels"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

MEDIAN = 1.2533
"""Standard error of the median of normal values over that of their mean, sqrt(pi / 2)."""


def pipeline_channels(views: Sequence[RankView], matched: Matched) -> NDArray[np.bool_]:
    """Per channel: whether it joins two pipeline stages, that is, is point-to-point and not part of a ring."""
    stages = np.array([c.point_to_point for c in matched.channels], np.bool_)
    for channels in _joined(matched):
        if _between_equals(views, matched, channels):
            stages[channels] = False
    return stages


def _joined(matched: Matched) -> list[list[int]]:
    """Group the point-to-point channels (indices) of one process group that are connected by common ranks."""
    found: list[tuple[str, set[int], list[int]]] = []
    for index, channel in enumerate(matched.channels):
        if not channel.point_to_point:
            continue
        ranks, channels = set(channel.ranks), [index]
        for part in [f for f in found if f[0] == channel.name and f[1] & ranks]:
            ranks |= part[1]
            channels += part[2]
            found.remove(part)
        found.append((channel.name, ranks, sorted(channels)))
    return [channels for _, _, channels in found]


def _between_equals(views: Sequence[RankView], matched: Matched, channels: list[int]) -> bool:
    members = np.flatnonzero(np.isin(matched.channel[matched.call], channels))
    kinds: dict[int, list[str]] = {}
    counts: list[tuple[int, ...]] = []
    steps = min(len(view.trace.steps) for view in views)
    for column in np.unique(matched.column[members]).tolist():
        mine = members[matched.column[members] == column]
        rows = np.sort(matched.row[mine])
        view = views[column]
        said = [_kind(view, r) for r in rows.tolist()]
        kinds[column] = said
        counts.append(_usual(view, rows, said))
    if len(counts) == 2:
        # Two ranks always have equal counts. Equal ranks send and receive in the same order.
        one, other = kinds.values()
        if set(one) == set(other) == {"sendrecv"}:
            return True
        return one == other and len(set(one)) > 1
    return _equal(np.array(counts, np.float64), _share_lost(matched, channels), steps)


def _share_lost(matched: Matched, channels: list[int]) -> float:
    """Share of the records of these channels that are missing: calls of which a recorded rank of the channel has no
    record."""
    calls = np.bincount(matched.channel, minlength=len(matched.channels))
    due = sum(int(calls[c]) * len(set(matched.channels[c].ranks) & set(matched.ranks)) for c in channels)
    recorded = int(np.isin(matched.channel[matched.call], channels).sum())
    return 1.0 - recorded / due if due else 0.0


def _equal(counts: F64, lost: float, steps: int) -> bool:
    """Whether the ranks' sends and receives a step differ by no more than lost records explain.

    A count scatters with the number of records that were lost of it, and its median over the steps by less.

    Args:
        counts: median sends and receives a step, shape (ranks, 2).
        lost: share of the records that are missing.
        steps: number of recorded steps.
    """
    most = counts.max(axis=0)
    scatter = np.sqrt(2.0 * most * lost * (1.0 - lost)) * MEDIAN / np.sqrt(max(steps, 1))
    return bool((most - counts.min(axis=0) <= ODDS * scatter).all())


def _kind(view: RankView, row: int) -> str:
    """Canonical kind of a call; ``unsaid`` if its messages are not recorded, so that they may go one way only."""
    calls = view.trace.collectives
    kind = canonical(calls.kind[row])
    return "unsaid" if kind == "sendrecv" and not calls.pieces[row] else kind


def _usual(view: RankView, rows: I64, kinds: list[str]) -> tuple[int, ...]:
    """Median sends and receives a step of one rank, which a lost record or a truncated window hardly changes."""
    step = view.trace.events.step[view.trace.collectives.event[rows]]
    per_step: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for number, kind in zip(step.tolist(), kinds, strict=True):
        per_step[number][0] += kind != "recv"
        per_step[number][1] += kind != "send"
    return tuple(int(n) for n in np.median(np.array(list(per_step.values())), axis=0))
