"""Attributes that explain why a rank is late: what its host and device did in each segment.

Every attribute is a time (ns) or a count per segment, a segment being the time between two launches of matched calls.
Its difference from the peers, summed over the segments in which a rank is late, is the time that it explains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.host_time import RankHostTime
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.segments import Plan
from rankscope.causes import host_sync
from rankscope.causes.table import HOST_CAUSES, WORK_CAUSES
from rankscope.trace.columns import Category
from rankscope.trace.names import Kind

__all__ = ["ATTRIBUTES", "Profile", "profile", "same_program", "work_difference"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

ATTRIBUTES = tuple(cause.name for cause in HOST_CAUSES)
"""Host times that name a cause, most specific first: time that has two causes counts for the first."""

SAME = 0.75
"""Least ratio of the numbers of launches at one position at which two ranks are taken to do the same there."""
ALIKE = 0.5
"""Least share of positions, or of launches, that two ranks must have in common to run the same program. A rank that
launches twice as much as its peer everywhere can be found to do more work; one that launches it at other positions runs
another program."""


@dataclass(slots=True)
class Profile:
    """Attributes of one rank; each value array has shape (S,)."""

    bounds: I64
    """Bounds of the rank's segments on its own clock, in ns; one more than it has segments."""
    shift: int
    """Position of the first segment."""
    length: dict[str, F64]
    count: dict[str, F64]
    spans: dict[str, intervals.Spans]
    """Host time of each attribute, without that of earlier attributes."""
    named: intervals.Spans
    """Host time of all attributes. Computation within it (a compiler that benchmarks operators, a loader that stacks
    samples) belongs to that cause, and is no work of its own."""


def profile(view: RankView, cuts: I64, shift: int, size: int) -> Profile:
    """Compute the attributes of a rank.

    Args:
        view: the rank.
        cuts: launches of the calls that bound its segments, in order, in ns of its own clock.
        shift: position of the first of them.
        size: number of positions of the window.
    """
    events = view.trace.events
    # Calls may be launched before the accounted time. Without step marks, that time begins with the device's work;
    # where profilers opened at different times, with the last of them.
    first = [view.start, *view.trace.steps.start[:1].tolist(), *cuts[:1].tolist()]
    last = [view.end, *cuts[-1:].tolist()]
    bounds = np.concatenate(([min(first)], cuts, [max(last)])).astype(np.int64)
    bounds = np.maximum.accumulate(bounds)  # a damaged trace may launch a later call before an earlier one

    operators = view.chain & (events.category == Category.CPU_OP)
    host = RankHostTime(view)
    named = {cause.name: cause.host_time(host) for cause in HOST_CAUSES if cause.host_time}
    taken, apart = intervals.EMPTY, dict[str, intervals.Spans]()
    length: dict[str, F64] = {}
    for name in ATTRIBUTES:
        spans = apart[name] = intervals.subtract(named[name], taken)
        length[name] = _padded(intervals.cover_between(spans, bounds), shift, size)
        if len(spans[0]):
            taken = intervals.union(np.concatenate((taken[0], spans[0])), np.concatenate((taken[1], spans[1])))
    masks = {"syncs": host.named_calls(host_sync.CALLS), "ops": operators, "launches": events.launching}
    # events are in order of their start; one at the last bound belongs to the last segment
    place = np.append(np.searchsorted(events.start, bounds[:-1]), np.searchsorted(events.start, bounds[-1:], "right"))
    count = {name: _padded(np.diff(np.append(0, np.cumsum(mask))[place]), shift, size) for name, mask in masks.items()}
    return Profile(bounds, shift, length, count, apart, taken)


def same_program(plan: Plan, profiles: Sequence[Profile]) -> Plan:
    """Return the plan in which ranks are compared only if they launch about as much at the same positions.

    Ranks may make the same calls and differ in between: of two pipeline stages whose transfers were recorded without a
    direction, one runs forward where the other runs backward.
    """
    found: dict[int, list[int]] = {}
    for team in plan.teams.values():
        heads: list[list[int]] = []
        for column in team:
            like = next((group for group in heads if _alike(plan, profiles, group[0], column)), None)
            if like is None:
                heads.append(like := [])
            like.append(column)
            found[column] = like
    return Plan(plan.rows, plan.times, plan.shift, [found.get(c, []) for c in range(len(plan.peers))])


def _alike(plan: Plan, profiles: Sequence[Profile], one: int, other: int) -> bool:
    """Whether two ranks launch about as much at most positions, or in total.

    The total is needed where extra work at one position is most of a rank's work.
    """
    both = plan.whole(one) & plan.whole(other)
    a, b = (profiles[c].count["launches"][both] for c in (one, other))
    less, more = np.minimum(a, b), np.maximum(a, b)
    if not more.any():
        return True
    places = less[more > 0] >= SAME * more[more > 0]
    return float(places.mean()) >= ALIKE or float(less.sum()) >= ALIKE * float(more.sum())


def _padded(values: NDArray[np.int64] | F64, shift: int, size: int) -> F64:
    if not values.any():  # most causes take no time on most ranks
        return np.broadcast_to(np.zeros(()), size)
    out = np.zeros(max(size, shift + len(values)))
    out[shift : shift + len(values)] = values
    return out[:size]


def work_difference(late: RankView, peer: RankView, a: Profile, b: Profile, segments: I64) -> dict[str, float]:
    """Attribute the extra device work (operators on a CPU) of ``late`` over ``peer`` to a cause; returns cause -> ns.

    It is the first of ``WORK_CAUSES`` that fits. Operators are compared, not kernel names, because the library selects
    another kernel for another shape.
    """
    more = _work_time(late, a, segments) - _work_time(peer, b, segments)
    if more <= 0:
        return {}
    compared = _Comparison(late, peer, a, b, segments)
    return {next(cause.name for cause in WORK_CAUSES if cause.more_work and cause.more_work(compared)): more}


class _Comparison:
    """See ``causes.base.WorkComparison``."""

    def __init__(self, late: RankView, peer: RankView, a: Profile, b: Profile, segments: I64) -> None:
        self._sides, self._segments = ((late, a), (peer, b)), segments
        ours, theirs = _operators(late, a, segments), _operators(peer, b, segments)
        count_a, count_b = Counter(k[0] for k in ours.elements()), Counter(k[0] for k in theirs.elements())
        self.operators = max(sum(count_b.values()), 1)
        self.extra_operators = sum((count_a - count_b).values())
        self.other_shapes = sum((ours - theirs).values())
        self.shapes_known = any(k[1] for k in ours)

    @property
    def other_grids(self) -> bool:
        own, other = (_grids(view, profile, self._segments) for view, profile in self._sides)
        return own != other


def _inside(own: Profile, times: I64, segments: I64) -> NDArray[np.bool_]:
    """Mask of the times that lie in the given segments, outside of host time with a named cause."""
    place = np.searchsorted(own.bounds, times, side="right") - 1
    return np.isin(np.where(place >= 0, place + own.shift, -1), segments) & ~intervals.contains(own.named, times)


def _work_time(view: RankView, own: Profile, segments: I64) -> float:
    events = view.trace.events
    compute = np.flatnonzero(view.kind == Kind.COMPUTE)
    if not view.device:
        begin, end = own.bounds[:-1], own.bounds[1:]
        chosen = segments - own.shift
        chosen = chosen[(chosen >= 0) & (chosen < len(begin))]
        alone = intervals.subtract(view.compute, own.named)
        return float(intervals.cover(alone, begin[chosen], end[chosen]).sum())
    compute = compute[events.launch[compute] >= 0]
    asked = events.start[events.launch[compute]]
    return float(events.duration[compute[_inside(own, asked, segments)]].sum())


def _operators(view: RankView, own: Profile, segments: I64) -> Counter[tuple[str, str]]:
    """Count the operators of the training threads by (name, input shapes)."""
    events, strings = view.trace.events, view.trace.strings
    chosen = np.flatnonzero(view.chain & (events.category == Category.CPU_OP))
    chosen = chosen[_inside(own, events.start[chosen], segments)]
    pairs, counts = np.unique(np.stack((events.name[chosen], events.shape[chosen])), axis=1, return_counts=True)
    return Counter(
        {
            (strings[n], strings[s] if s >= 0 else ""): int(c)
            for n, s, c in zip(pairs[0].tolist(), pairs[1].tolist(), counts.tolist(), strict=True)
        }
    )


def _grids(view: RankView, own: Profile, segments: I64) -> Counter[str]:
    events, strings = view.trace.events, view.trace.strings
    chosen = np.flatnonzero((view.kind == Kind.COMPUTE) & (events.launch >= 0))
    chosen = chosen[_inside(own, events.start[events.launch[chosen]], segments)]
    return Counter(strings[s] if s >= 0 else "" for s in events.shape[chosen].tolist())
