"""Pairs of ranks between which messages take longer than between other pairs: sends and receives, and exchanges of
several messages (a ring).

The time of a message is the transfer of that of its two ranks which took less. It contains no lateness, and errors of
the clocks can only shorten it. Compared are messages of one size, over links that are equal by design: from rank to
rank of one host with an even network, or from host to host. Where that or the size is not known, a pair is compared
with the pairs at its place in other pipelines and rings of the job only. Even the faster messages of a slow link take
longer, whatever else uses it now and then: of each step the fastest quarter counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.links.layout import Layout, layout_of
from rankscope.analysis.links.slow_transfers import SlowTransfers, relative_error
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.stragglers.candidates import Window
from rankscope.analysis.stragglers.statistics import above
from rankscope.statistics.medians import median_of_known

__all__ = ["slow_messages"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

FASTEST = 0.25
FEW = 12
"""With up to this many links, the other direction of a link is left out of the median that it is compared with."""
BEYOND_CLOCKS = 2.0
"""A message must take longer by so many typical errors of the clocks, which shorten the times of the others."""
LARGEST = 4
"""Ranks of an exchange in which each waits for all others."""


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages of the common steps; arrays of shape (messages,)."""

    one: I64
    """Member of the matched call; ``other`` is that of the other rank."""
    other: I64
    step: I64
    """Index into the common steps."""
    link: I64
    """Index into the links."""
    took: F64
    """ns."""


@dataclass(frozen=True, slots=True)
class _Link:
    """Messages of one size and direction between two ranks."""

    columns: tuple[int, int]
    """In ascending order."""
    channel: int
    size: tuple[int, str]
    """Elements, -1 if unknown, and their type."""


def slow_messages(window: Window, waits: Waits, least: float) -> list[SlowTransfers]:
    """Return the pairs of ranks whose messages take longer; pairs with a rank in common are one result.

    Args:
        window: the window.
        waits: the transfers of its calls.
        least: time in the window, in ns, which the messages of a pair must take longer. To mend them gains no more.
    """
    views, matched = window.views, window.matched
    messages, links = _messages(views, matched, waits)
    if not links:
        return []
    times = _fastest(messages, len(links), len(waits.steps.common))
    layout = layout_of(views)
    slow: dict[int, tuple[float, float]] = {}
    for alike in _classes(views, matched, links, layout):
        usual = _of_other_pairs([links[at].columns for at in alike], times[alike])
        log = np.log(times[alike]) - np.log(usual)
        found, mean, error = above(log)
        for place in np.flatnonzero(found).tolist():
            more = np.nanmean(times[alike[place]] - usual[place])
            if more <= BEYOND_CLOCKS * window.clocks.spread_ns:
                continue
            known = int((~np.isnan(log[place])).sum())
            slow[alike[place]] = float(mean[place]), relative_error(float(mean[place]), float(error[place]), known)
    extra: dict[tuple[int, int], float] = defaultdict(float)
    for at, (more, _) in slow.items():
        extra[links[at].columns] += -np.expm1(-more) * float(messages.took[messages.link == at].sum())
    slow = {at: found for at, found in slow.items() if extra[links[at].columns] >= least}
    return [_result(part, slow, links, messages, matched) for part in _joined(slow, links)]


def _messages(views: Sequence[RankView], matched: Matched, waits: Waits) -> tuple[_Messages, list[_Link]]:
    device = np.array([view.device for view in views], np.bool_)
    direct = np.array([channel.point_to_point for channel in matched.channels], np.bool_)[matched.channel]
    pairs = [matched.awaits[:, matched.awaits[0] < matched.awaits[1]]]
    for table in matched.by_size(direct & ~matched.partial & (matched.size <= LARGEST)):
        places = np.triu_indices(table.shape[1], 1)
        pairs.append(np.stack([table[:, at].ravel() for at in places]))
    one, other = np.concatenate(pairs, axis=1)
    call, number = matched.call[one], waits.steps.of_call[matched.call[one]]
    step = np.searchsorted(waits.steps.common, number)
    kept = direct[call] & ~waits.early[call] & np.isin(number, waits.steps.common)
    kept &= device[matched.column[one]] & device[matched.column[other]]
    one, other, step = one[kept], other[kept], step[kept]
    known: dict[_Link, int] = {}
    link = [known.setdefault(_link_of(views, matched, *pair), len(known)) for pair in zip(one, other, strict=True)]
    took = np.minimum(waits.transfer[one], waits.transfer[other])
    return _Messages(one, other, step.astype(np.int64), np.array(link, np.int64), took), list(known)


def _link_of(views: Sequence[RankView], matched: Matched, one: int, other: int) -> _Link:
    here, there = int(matched.column[one]), int(matched.column[other])
    calls, row = views[here].trace.collectives, int(matched.row[one])
    sizes = [piece.elements for piece in calls.pieces[row] if piece.peer == views[there].rank]
    elements = sum(sizes) if sizes and min(sizes) > 0 else -1
    low, high = sorted((here, there))
    return _Link((low, high), int(matched.channel[matched.call[one]]), (elements, calls.dtype[row]))


def _fastest(messages: _Messages, links: int, steps: int) -> F64:
    """Return the time of the fastest quarter of each link's messages of each step, shape (links, steps); NaN for
    none."""
    found = np.full(links * steps, np.nan)
    cell = messages.link * steps + messages.step
    order = np.lexsort((messages.took, cell))
    cell, took = cell[order], messages.took[order]
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    count = np.diff(first, append=len(cell))
    times = took[first + ((count - 1) * FASTEST).astype(np.int64)]
    found[cell[first]] = np.where(times > 0, times, np.nan)  # 0: it was sent before anybody waited for it
    return found.reshape(links, steps)


def _classes(views: Sequence[RankView], matched: Matched, links: Sequence[_Link], layout: Layout) -> list[list[int]]:
    """Return links that are equal by design, in lists with more than one pair of ranks."""
    places = _places(views, matched, links)
    classes: dict[Hashable, list[int]] = defaultdict(list)
    for at, link in enumerate(links):
        sized = link.size[0] > 0
        spread = layout.spread(link.columns)
        place = None if sized and layout.alike(link.columns) else places[link.channel, link.columns]
        classes[link.size, spread, place].append(at)
    return [alike for alike in classes.values() if len({links[at].columns for at in alike}) > 1]


def _places(
    views: Sequence[RankView], matched: Matched, links: Sequence[_Link]
) -> dict[tuple[int, tuple[int, int]], Hashable]:
    """Return the place of each link in its pipeline or ring: the ranks of both, counted from the first of them."""
    name = {at: matched.channels[link.channel].name for at, link in enumerate(links)}
    found: dict[tuple[int, tuple[int, int]], Hashable] = {}
    for part in _joined(name, links, name):
        ranks = sorted({views[column].rank for at in part for column in links[at].columns})
        shape = tuple(rank - ranks[0] for rank in ranks)
        for at in part:
            one, other = (views[column].rank - ranks[0] for column in links[at].columns)
            sent = matched.channels[links[at].channel].ranks
            found[links[at].channel, links[at].columns] = shape, one, other, sent[0] < sent[-1]
    return found


def _of_other_pairs(columns: Sequence[tuple[int, int]], times: F64) -> F64:
    """Return the median over the links of other pairs of ranks, shape as ``times``; NaN where there is none."""
    if len(columns) > FEW:
        return np.broadcast_to(median_of_known(times.T), times.shape)
    pair = np.array(columns)
    others = [(pair != own).any(axis=1) for own in pair]
    return np.stack([median_of_known(times[some].T) for some in others])


def _joined(chosen: Iterable[int], links: Sequence[_Link], name: dict[int, str] | None = None) -> list[list[int]]:
    """Group links that are connected by common ranks (and have one ``name``)."""
    found: list[tuple[str, set[int], list[int]]] = []
    for at in chosen:
        own, ranks, part = (name or {}).get(at, ""), set(links[at].columns), [at]
        for near in [f for f in found if f[0] == own and f[1] & ranks]:
            ranks |= near[1]
            part = near[2] + part
            found.remove(near)
        found.append((own, ranks, part))
    return [part for _, _, part in found]


def _result(
    part: list[int],
    slow: dict[int, tuple[float, float]],
    links: Sequence[_Link],
    messages: _Messages,
    matched: Matched,
) -> SlowTransfers:
    factor = np.ones(len(matched.call))
    for at in part:
        mine = messages.link == at
        for members in (messages.one[mine], messages.other[mine]):
            factor[members] = np.minimum(factor[members], np.exp(-slow[at][0]))
    pairs = sorted({tuple(matched.ranks[column] for column in links[at].columns) for at in part})
    worst = max(part, key=lambda at: slow[at][0])
    return SlowTransfers(
        ranks=tuple(sorted({rank for pair in pairs for rank in pair})),
        kinds=("message",),
        ratio=float(np.exp(slow[worst][0])),
        members=np.flatnonzero(factor < 1.0),
        factor=factor[factor < 1.0],
        error=max(slow[at][1] for at in part),
        pairs=tuple((pair[0], pair[1]) for pair in pairs),
    )
