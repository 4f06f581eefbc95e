"""Divide each rank's work into segments that are comparable between ranks, at the launches of its calls.

Segment ``p`` of a rank lies before its call at position ``p`` of the program that its peers run as well. Peers are
ranks of one pipeline stage that make the same calls in the same order. Calls are numbered in one of two ways:

- By the calls that every member of their group recorded; the position is the count. It is right if all ranks lost the
  same records.
- By all calls of known groups. It is needed where a rank is missing (so that its peers' calls with it match nothing), a
  record was lost, or the window of some rank was cut. Sequences are aligned, and calls without a record on one of the
  peers are left out.

The numbering that leaves more ranks with peers is used; if both leave equally many, the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.steps import JobSteps
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.matching.communicators import canonical
from rankscope.analysis.matching.once import Once, distinct
from rankscope.analysis.matching.rings import pipeline_channels
from rankscope.analysis.rank.cpu_only import cpu_issues
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.alignment import NOWHERE, places_in

__all__ = ["Plan", "launch_times", "no_plan", "plan_segments", "stages_of", "without"]

I64 = NDArray[np.int64]
CONSTANT = 0.9
"""Least share of matched calls that must agree on the distance of two ranks' positions."""


@dataclass(slots=True)
class Plan:
    """Segments and peers of all ranks of a window; every list has one entry for each rank."""

    rows: list[I64]
    """Rows of the calls that bound segments, in order of launch; none for a lone rank (``replay.alone``)."""
    times: list[I64]
    """Launch times of what bounds segments, in ns of the rank's own clock."""
    shift: list[int]
    """Position of the first of them."""
    peers: list[list[int]]
    """Columns of the ranks to compare with, the rank itself included; empty for a rank without calls."""

    size: int = field(init=False)
    """Number of positions: one more than the largest."""
    opens: list[int] = field(init=False)
    """Per rank: the first position that any of its peers has."""

    def __post_init__(self) -> None:
        self.size = max((s + len(t) + 1 for s, t in zip(self.shift, self.times, strict=True)), default=1)
        first = {key: min(self.shift[c] for c in team) for key, team in self.teams.items()}
        self.opens = [first.get(id(team), s) for team, s in zip(self.peers, self.shift, strict=True)]

    @property
    def teams(self) -> dict[int, list[int]]:
        """Each list of peers once, by the identity that its ranks share: work on a team is done once, not per rank."""
        return {id(team): team for team in self.peers if team}

    @property
    def comparable(self) -> int:
        """Number of ranks that have a peer."""
        return sum(len(p) > 1 for p in self.peers)

    def segment_of(self, column: int, launched: I64) -> I64:
        """Return the segments in which a rank's host launched work; ``launched`` in ns of its own clock."""
        place = np.searchsorted(self.times[column], launched) + self.shift[column]
        return np.minimum(place, self.size - 1).astype(np.int64)

    def whole(self, column: int) -> NDArray[np.bool_]:
        """Mask of the positions whose segment the rank recorded completely, shape (size,). Its first counts if no peer
        began earlier."""
        first, count = self.shift[column], len(self.times[column])
        found = np.zeros(self.size, np.bool_)
        found[first + 1 : first + count] = True
        found[first : first + 1] = first == self.opens[column]
        return found


def launch_times(view: RankView, rows: I64) -> I64:
    """Times at which the host launched calls (without a device: issued them), in ns of the own clock; their start if
    unknown."""
    events = view.trace.events
    if not view.device:
        return cpu_issues(view)[rows]
    event = view.trace.collectives.event[rows]
    launch = events.launch[event]
    return np.where(launch >= 0, events.start[launch], events.start[event]).astype(np.int64)


def no_plan(ranks: int) -> Plan:
    """Return a plan without comparable segments."""
    return Plan([np.empty(0, np.int64) for _ in range(ranks)], [np.empty(0, np.int64) for _ in range(ranks)],
                [0] * ranks, [[] for _ in range(ranks)])  # fmt: skip


def without(plan: Plan, columns: Sequence[int]) -> Plan:
    """Return the plan in which these ranks are compared with no other."""
    if not columns:
        return plan
    left = set(columns)
    teams = {key: [c for c in team if c not in left] for key, team in plan.teams.items()}
    peers = [[] if c in left or not team else teams[id(team)] for c, team in enumerate(plan.peers)]
    return Plan(plan.rows, plan.times, plan.shift, peers)


def plan_segments(views: Sequence[RankView], matched: Matched, steps: JobSteps) -> Plan:
    """Return the plan by the numbering that leaves more ranks with peers."""
    stages = stages_of(views, matched)
    complete = matched.size[matched.call] == _members(matched)[matched.channel[matched.call]]
    mine = [matched.of(c) for c in range(len(views))]
    plain, times = _sorted(views, [matched.row[m[complete[m]]].astype(np.int64) for m in mine])
    said = _said(views, plain, steps)
    first = _equal(plain, times, said, [(s,) for s in stages])
    if first.comparable == len(views):
        return first
    known, _ = _sorted(
        views,
        [np.union1d(matched.row[m], more).astype(np.int64) for m, more in zip(mine, matched.known, strict=True)],
    )
    shift, part = _shifts(matched, known)
    said = _said(views, known, steps)
    second = _aligned(views, known, said, shift, list(zip(stages, part, strict=True)), matched.lost)
    return second if second.comparable > first.comparable else first


def _members(matched: Matched) -> I64:
    """Number of ranks that have calls in each channel."""
    pairs = np.unique(matched.channel[matched.call].astype(np.int64) * len(matched.ranks) + matched.column)
    return np.bincount(pairs // len(matched.ranks), minlength=len(matched.channels))


def _sorted(views: Sequence[RankView], rows: list[I64]) -> tuple[list[I64], list[I64]]:
    """Return the calls of each rank in order of launch, and when they were launched."""
    times = [launch_times(v, r) for v, r in zip(views, rows, strict=True)]
    orders = [np.argsort(t, kind="stable") for t in times]
    return [r[o] for r, o in zip(rows, orders, strict=True)], [t[o] for t, o in zip(times, orders, strict=True)]


def _said(views: Sequence[RankView], rows: list[I64], steps: JobSteps | None) -> list[I64]:
    """Return kind, group size and (given ``steps``) step of each call as one integer that is comparable between
    ranks."""
    known, once, found = dict[str, int](), Once(), list[I64]()
    for column, (view, mine) in enumerate(zip(views, rows, strict=True)):
        said = _calls(view, mine, known, once)
        if steps is not None and view.steps:
            step = view.trace.events.step[view.trace.collectives.event[mine]].astype(np.int64)
            number = np.append(steps.of_rank(view, column), -1)[step]
            said = said + 1_000_000_000 * (number + 1)
        found.append(said)
    return found


def _equal(rows: list[I64], times: list[I64], said: list[I64], keys: list[tuple[int, ...]]) -> Plan:
    """Take ranks of equal key with equal calls as peers."""
    teams: dict[tuple[tuple[int, ...], bytes], list[int]] = {}
    of: list[list[int]] = [[] for _ in rows]
    for column, calls in enumerate(said):
        if len(calls):
            of[column] = teams.setdefault((keys[column], calls.tobytes()), [])
            of[column].append(column)
    return Plan(rows, times, [0] * len(rows), of)


@dataclass(slots=True)
class _Team:
    """Ranks that make the same calls. ``places[c][i]`` is the position of the i-th call of rank ``c``."""

    head: int
    places: dict[int, I64]


def _aligned(
    views: Sequence[RankView],
    rows: list[I64],
    said: list[I64],
    shift: list[int],
    keys: list[tuple[int, ...]],
    lost: Sequence[int],
) -> Plan:
    """Take ranks of equal key as peers whose calls are equal except for records that are known to be lost."""
    teams: list[_Team] = []
    for column in sorted(range(len(rows)), key=lambda c: (-len(rows[c]), c)):
        if not len(rows[column]):
            continue
        for team in teams:
            head = team.head
            if keys[head] != keys[column]:
                continue
            places = places_in(said[head], said[column], shift[column] - shift[head], lost[head], lost[column])
            if places is not None:
                team.places[column] = np.where(places == NOWHERE, NOWHERE, shift[head] + places)
                break
        else:
            teams.append(_Team(column, {column: shift[column] + np.arange(len(rows[column]))}))
    kept: list[I64] = [r[:0] for r in rows]
    shifts = [0] * len(rows)
    of: list[list[int]] = [[] for _ in rows]
    for team in teams:
        members = sorted(team.places)
        shared = _shared([team.places[c] for c in members])
        for column in members:
            places = team.places[column]
            kept[column] = rows[column][np.isin(places, shared)]
            shifts[column] = int(np.searchsorted(shared, places[places != NOWHERE][0]))
            of[column] = members
    return Plan(kept, [launch_times(v, r) for v, r in zip(views, kept, strict=True)], shifts, of)


def _shared(places: Sequence[I64]) -> I64:
    """Positions that are not missing on any rank whose window contains them."""
    known = [own[own != NOWHERE] for own in places]
    low, high = min(int(own[0]) for own in known), max(int(own[-1]) for own in known)
    every = np.arange(low, high + 1)
    missing, recorded = np.zeros(len(every), np.bool_), np.zeros(len(every), np.bool_)
    for own in known:
        has = np.zeros(len(every), np.bool_)
        has[own - low] = True
        missing[own[0] - low : own[-1] + 1 - low] |= ~has[own[0] - low : own[-1] + 1 - low]
        recorded |= has
    return every[recorded & ~missing]


def _calls(view: RankView, rows: I64, known: dict[str, int], once: Once) -> I64:
    """Return kind and group size of each call as one integer below 10^9; ``known`` numbers the kinds."""
    calls = view.trace.collectives
    kinds, which = once(distinct, calls.kind)
    number = np.array([known.setdefault(canonical(kind), len(known)) for kind in kinds], np.int64)
    sizes = np.array([*(len(group.ranks) for group in view.trace.groups), 0], np.int64)  # -1: unknown
    return number[which[rows]] + 1_000 * sizes[calls.group[rows]]


def _shifts(matched: Matched, rows: list[I64]) -> tuple[list[int], list[int]]:
    """Compute the positions of the ranks' first calls, from the distances of the same calls in their sequences.

    Returns:
        The position of each rank's first call, and per rank a number of the set of ranks that is connected by calls.
        Positions of different sets cannot be compared.
    """
    place = np.empty(len(matched.call), np.int64)
    for column, own in enumerate(rows):
        mine = matched.of(column)
        order = np.argsort(own, kind="stable")
        place[mine] = order[np.searchsorted(own, matched.row[mine], sorter=order)]
    near: list[dict[int, int]] = [{} for _ in rows]
    if len(matched):
        head = matched.first[:-1][matched.call]
        pair = matched.column[head].astype(np.int64) * len(rows) + matched.column
        later = np.flatnonzero(head != np.arange(len(head)))
        later = later[np.argsort(pair[later], kind="stable")]
        for members in np.split(later, np.flatnonzero(np.diff(pair[later])) + 1):
            one, other = divmod(int(pair[members[0]]), len(rows)) if len(members) else (0, 0)
            apart = place[head[members]] - place[members]
            middle = int(np.median(apart)) if len(members) else 0
            if len(members) and np.mean(np.abs(apart - middle) <= matched.lost[one] + matched.lost[other]) >= CONSTANT:
                near[one].setdefault(other, middle)
                near[other].setdefault(one, -middle)
    shift: dict[int, int] = {}
    parts = [0] * len(rows)
    for root in range(len(rows)):
        if root in shift:
            continue
        shift[root] = 0
        part, queue = [root], [root]
        while queue:
            here = queue.pop(0)
            for other, apart_by in near[here].items():
                if other not in shift:
                    shift[other] = shift[here] + apart_by
                    part.append(other)
                    queue.append(other)
        least = min(shift[c] for c in part)
        for column in part:
            shift[column] -= least
            parts[column] = root
    return [shift[c] for c in range(len(rows))], parts


def stages_of(views: Sequence[RankView], matched: Matched) -> list[int]:
    """Index of each rank among the pipeline stages that it is connected with; 0 for a rank without stages."""
    chain = {rank: {rank} for rank in matched.ranks}
    for channel, staged in zip(matched.channels, pipeline_channels(views, matched).tolist(), strict=True):
        if staged:
            joined = set().union(*(chain.get(r, {r}) for r in channel.ranks))
            for rank in joined:
                chain[rank] = joined
    return [sorted(chain[rank]).index(rank) for rank in matched.ranks]
