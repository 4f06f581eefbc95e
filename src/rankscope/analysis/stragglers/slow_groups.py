"""Process groups whose transfers take longer than those of similar groups: a slow link, adapter or switch.

The groups along one dimension of a mesh make the same calls with the same sizes, each over other links. Their
transfers, from the last arrival to the end, can be compared as kernels are between ranks. A job with a single group has
nothing to compare it with.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.replay.what_if import Replay
from rankscope.analysis.stragglers.model_error import LINK, model_error
from rankscope.analysis.stragglers.statistics import above, confidence, mean_error
from rankscope.statistics.medians import median_of_others
from rankscope.statistics.thresholds import MATTERS

__all__ = ["SlowGroup", "slow_groups"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SlowGroup:
    """A group whose transfers take ``ratio`` times as long as those of similar groups. Times in ns."""

    ranks: tuple[int, ...]
    kinds: tuple[str, ...]
    ratio: float
    gains: F64
    """Gain per step of the replay if its transfers took as long as those of similar groups."""
    error: float
    """Half width of the 95 % confidence interval of the mean gain."""


def slow_groups(replay: Replay, matched: Matched, waits: Waits, step_ns: float, mesh: str) -> list[SlowGroup]:
    """Return the groups that cost the job more than :data:`MATTERS` of its step time (ns), the costliest first."""
    found = []
    for channels in _alike(matched, len(waits.steps.common)):
        log = _transfers(matched, waits, channels)
        slower, mean, error = above(log)
        for place in np.flatnonzero(slower).tolist():
            gains = replay.gains(_mended(replay, matched, channels[place], float(np.exp(-mean[place]))))
            cost = float(gains.mean())
            wide = confidence(int((~np.isnan(log[place])).sum()))
            share = float(np.hypot(wide * error[place] / mean[place], model_error(mesh, LINK)))
            width = float(np.hypot(cost * share, confidence(len(gains)) * mean_error(gains) if len(gains) > 1 else 0.0))
            if cost - width > MATTERS * step_ns:
                kinds = sorted({matched.kind[c] for c in np.flatnonzero(matched.channel == channels[place]).tolist()})
                ranks = matched.channels[channels[place]].ranks
                found.append(SlowGroup(ranks, tuple(kinds), float(np.exp(mean[place])), gains, width))
    return sorted(found, key=lambda group: -float(group.gains.sum()))


def _alike(matched: Matched, steps: int) -> list[list[int]]:
    """Return classes of groups with equal size, kinds of calls and calls a step that have no rank in common."""
    classes: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, (channel, calls) in enumerate(zip(matched.channels, _calls_of_each(matched), strict=True)):
        if not channel.point_to_point and not channel.guessed:
            kinds = tuple(sorted({matched.kind[c] for c in calls.tolist()}))
            if kinds:
                often = round(len(calls) / max(steps, 1))
                classes[len(channel.ranks), kinds, often, channel.number].append(index)
    groups = []
    for channels in classes.values():
        ranks = [r for c in channels for r in matched.channels[c].ranks]
        if len(channels) > 1 and len(set(ranks)) == len(ranks):
            groups.append(channels)
    return groups


def _calls_of_each(matched: Matched) -> list[I64]:
    """Return the calls of each channel, in order."""
    order = np.argsort(matched.channel, kind="stable")
    bounds = np.searchsorted(matched.channel[order], np.arange(1, len(matched.channels)))
    return np.split(order, bounds) if matched.channels else []


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


def _mended(replay: Replay, matched: Matched, channel: int, factor: float) -> F64:
    """Return the work per edge if the transfers of one group took ``factor`` times as long."""
    edges, member = replay.graph.transfers()
    mine = edges[(member >= 0) & (matched.channel[matched.call[member]] == channel)]
    work: F64 = replay.graph.work.copy()
    work[mine] *= factor
    return work
