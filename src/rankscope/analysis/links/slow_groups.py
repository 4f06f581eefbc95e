"""Slow links: what the transfers that take longer than similar ones cost the job.

The groups along one dimension of a mesh make the same calls with the same sizes, each over other links. Their
transfers, from the last arrival to the end, can be compared as kernels are between ranks. A job with a single group has
nothing to compare it with. Messages between two ranks are compared in :mod:`slow_messages`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.links.layout import layout_of
from rankscope.analysis.links.slow_messages import slow_messages
from rankscope.analysis.links.slow_transfers import SlowTransfers, relative_error
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.graph import Graph
from rankscope.analysis.replay.longest_path import Changed
from rankscope.analysis.replay.what_if import gains_of_each
from rankscope.analysis.stragglers.candidates import Window
from rankscope.analysis.stragglers.measured import asking
from rankscope.analysis.stragglers.model_error import LINK, model_error
from rankscope.analysis.stragglers.statistics import above, confidence, mean_error
from rankscope.statistics.grouping import grouped
from rankscope.statistics.medians import median_of_others
from rankscope.statistics.thresholds import MATTERS

__all__ = ["SlowGroup", "slow_groups"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

MOST = 16
"""Largest number of slow groups and pairs that are priced. If there are more, slow links are not the exception."""


@dataclass(frozen=True, slots=True)
class SlowGroup:
    """Slow transfers, and what they cost. Times in ns."""

    slow: SlowTransfers
    gains: F64
    """Gain per step of the replay if these transfers took as long as similar ones, with other slow ones mended."""
    error: float
    """Half width of the 95 % confidence interval of the mean gain."""


def slow_groups(window: Window, waits: Waits, step_ns: float, lost: float) -> list[SlowGroup]:
    """Return what costs the job more than :data:`MATTERS` of its step time, the costliest first.

    Args:
        window: the window.
        waits: the transfers of its calls.
        step_ns: the job's step.
        lost: share of their speed that kernels lose beside communication.
    """
    matched = window.matched
    found = [
        *_slow_collectives(window.views, matched, waits),
        *slow_messages(window, waits, MATTERS * step_ns * window.replay.steps),
    ]
    if not 0 < len(found) <= MOST:
        return []
    ask, model = asking(window.replay, lost), model_error(window.mesh, LINK)
    while found:
        _, gains = gains_of_each(found, lambda some: ask(_mended(window.replay.graph, matched, some)))
        groups = [SlowGroup(slow, own, _error(own, slow.error, model)) for slow, own in zip(found, gains, strict=True)]
        kept = [group for group in groups if group.gains.mean() - group.error > MATTERS * step_ns]
        if len(kept) == len(found):
            return sorted(kept, key=lambda group: -float(group.gains.sum()))
        found = [group.slow for group in kept]
    return []


def _error(gains: F64, share: float, model: float) -> float:
    scatter = confidence(len(gains)) * mean_error(gains) if len(gains) > 1 else 0.0
    return float(np.hypot(gains.mean() * np.hypot(share, model), scatter))


def _mended(graph: Graph, matched: Matched, found: Sequence[SlowTransfers]) -> Changed:
    """Return the work if these transfers took as long as similar ones."""
    factor = np.ones(len(matched.call) + 1)  # the last is that of edges that belong to no call
    for slow in found:
        factor[slow.members] = np.minimum(factor[slow.members], slow.factor)
    edges, member = graph.transfers()
    some = factor[member] < 1.0
    return Changed(edges[some].astype(np.int32), graph.work[edges[some]] * factor[member[some]])


def _slow_collectives(views: Sequence[RankView], matched: Matched, waits: Waits) -> list[SlowTransfers]:
    found = []
    for channels in _alike(views, matched, len(waits.steps.common)):
        log = _transfers(matched, waits, channels)
        slower, mean, error = above(log)
        for place in np.flatnonzero(slower).tolist():
            calls = np.flatnonzero(matched.channel == channels[place])
            members = np.flatnonzero(np.isin(matched.call, calls))
            found.append(
                SlowTransfers(
                    ranks=matched.channels[channels[place]].ranks,
                    kinds=tuple(sorted({matched.kind[c] for c in calls.tolist()})),
                    ratio=float(np.exp(mean[place])),
                    members=members,
                    factor=np.full(len(members), np.exp(-mean[place])),
                    error=relative_error(float(mean[place]), float(error[place]), int((~np.isnan(log[place])).sum())),
                )
            )
    return found


def _alike(views: Sequence[RankView], matched: Matched, steps: int) -> list[list[int]]:
    """Return classes of groups that make equal calls and lie equally on hosts, and have no rank in common."""
    classes: dict[Hashable, list[int]] = defaultdict(list)
    if sum(not channel.point_to_point for channel in matched.channels) < 2:
        return []
    layout, columns = layout_of(views), matched.of_channels()
    for index, (channel, program) in enumerate(zip(matched.channels, _programs(views, matched, steps), strict=True)):
        if not channel.point_to_point and not channel.guessed and index in columns:
            spread = layout.spread(columns[index].tolist())
            classes[len(channel.ranks), program, channel.number, spread].append(index)
    groups = []
    for channels in classes.values():
        ranks = [r for c in channels for r in matched.channels[c].ranks]
        if len(channels) > 1 and len(set(ranks)) == len(ranks):
            groups.append(channels)
    return groups


def _programs(views: Sequence[RankView], matched: Matched, steps: int) -> list[Hashable]:
    """Return the kinds and sizes of each channel's calls, with the number of each in a step, as recorded by the first
    member: calls of other sizes take other times."""
    column, row = matched.column[matched.first[:-1]], matched.row[matched.first[:-1]]
    inputs, outputs = np.empty(len(row), np.int64), np.empty(len(row), np.int64)
    for number in np.unique(column).tolist():
        own, calls = column == number, views[number].trace.collectives
        inputs[own], outputs[own] = calls.in_elements[row[own]], calls.out_elements[row[own]]
    counts: list[Counter[tuple[str, int, int]]] = [Counter() for _ in matched.channels]
    for channel, *size in zip(matched.channel.tolist(), matched.kind, inputs.tolist(), outputs.tolist(), strict=True):
        counts[channel][size[0], size[1], size[2]] += 1
    return [frozenset((*size, round(n / max(steps, 1))) for size, n in own.items()) for own in counts]


def _calls_of_each(matched: Matched) -> list[I64]:
    """Return the calls of each channel, in order."""
    order, first = grouped(matched.channel, len(matched.channels))
    return np.split(order, first[1:-1])


def _transfers(matched: Matched, waits: Waits, channels: list[int]) -> F64:
    """Shape (groups, steps): log of a group's transfer time in a step over the others' median; NaN where unknown."""
    steps = waits.steps.common
    taken = np.add.reduceat(waits.transfer, matched.first[:-1]) / matched.size
    total = np.zeros((len(channels), len(steps)))
    calls = _calls_of_each(matched)
    for place, channel in enumerate(channels):
        step = waits.steps.of_call[calls[channel]]
        for at, number in enumerate(steps.tolist()):
            total[place, at] = np.maximum(taken[calls[channel][step == number]], 0.0).sum()
    others = median_of_others(total.T).T
    log: F64 = np.full(total.shape, np.nan)
    both = (total > 0) & (others > 0)
    log[both] = np.log(total[both] / others[both])
    return log
