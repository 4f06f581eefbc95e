"""Where a rank's work is cut into segments that can be compared with other ranks': at the launches of its calls.

Segment ``p`` of a rank lies before its call at position ``p`` of the program all ranks run. Two ways to number them:

- by the calls matched on every member: position is the count. Right while all ranks lost the same calls.
- by all calls of known groups, positions shifted by what matched calls say: needed where a rank was lost (its peers'
  calls with it match nothing) or a window was cut on some rank of a mesh.

The way that leaves more ranks with peers is taken, the first if equal. Peers are ranks of one pipeline stage that make
the same calls at the same positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.matching.communicators import canonical
from rankscope.analysis.rank.cpu_only import cpu_issues
from rankscope.analysis.rank.view import RankView

__all__ = ["Plan", "launch_times", "plan_segments"]

I64 = NDArray[np.int64]
MIN_OVERLAP = 0.5
"""Share of the shorter window two ranks must have in common to be compared."""
CONSTANT = 0.9
"""Share of matched calls that must agree on how far two ranks' positions are apart."""


@dataclass(slots=True)
class Plan:
    """One entry per rank."""

    rows: list[I64]
    """Calls that bound segments, in order of launch."""
    times: list[I64]
    """Their launches on the rank's own clock."""
    shift: list[int]
    """Position of the first of them."""
    peers: list[list[int]]
    """Columns of the ranks to compare with, the rank itself included; empty for a rank without calls."""

    size: int = field(init=False)
    """One more than the largest position."""
    opens: list[int] = field(init=False)
    """Position at which the first of its peers begins."""

    def __post_init__(self) -> None:
        self.size = max((s + len(r) + 1 for s, r in zip(self.shift, self.rows, strict=True)), default=1)
        teams = {id(team): min(self.shift[c] for c in team) for team in self.peers if team}
        self.opens = [teams.get(id(team), s) for team, s in zip(self.peers, self.shift, strict=True)]

    @property
    def befriended(self) -> int:
        """Ranks that have a peer."""
        return sum(len(p) > 1 for p in self.peers)

    def whole(self, column: int) -> NDArray[np.bool_]:
        """Positions whose segment the rank recorded from its beginning; the first counts if no peer began earlier."""
        first, count = self.shift[column], len(self.rows[column])
        found = np.zeros(self.size, np.bool_)
        found[first + 1 : first + count] = True
        found[first : first + 1] = first == self.opens[column]
        return found


def launch_times(view: RankView, rows: I64) -> I64:
    """When the host launched (without a device: issued) calls; their start where that is not known. Own clock."""
    events = view.trace.events
    if not view.device:
        return cpu_issues(view)[rows]
    event = view.trace.collectives.event[rows]
    launch = events.launch[event]
    return np.where(launch >= 0, events.start[launch], events.start[event]).astype(np.int64)


def plan_segments(views: Sequence[RankView], matched: Matched) -> Plan:
    """The numbering that leaves more ranks with peers."""
    stages = _stages(matched)
    plain = _sorted(views, [matched.row[matched.of(c)].astype(np.int64) for c in range(len(views))])
    first = _with_peers(views, plain, [0] * len(views), [(s,) for s in stages], whole=True)
    if first.befriended == len(views):
        return first
    known = _sorted(
        views, [np.union1d(rows, np.array(more, np.int64)) for rows, more in zip(plain, matched.known, strict=True)]
    )
    shift, part = _shifts(matched, known)
    second = _with_peers(views, known, shift, list(zip(stages, part, strict=True)), whole=False)
    return second if second.befriended > first.befriended else first


def _sorted(views: Sequence[RankView], rows: list[I64]) -> list[I64]:
    return [r[np.argsort(launch_times(v, r), kind="stable")] for v, r in zip(views, rows, strict=True)]


def _with_peers(
    views: Sequence[RankView], rows: list[I64], shift: list[int], keys: list[tuple[int, ...]], *, whole: bool
) -> Plan:
    """``keys``: only ranks of the same one are compared; ``whole``: only ranks with equally many calls."""
    codes: dict[tuple[str, int], int] = {}
    said = [_calls(view, mine, codes) for view, mine in zip(views, rows, strict=True)]
    teams: list[list[int]] = []
    of: list[list[int]] = [[] for _ in rows]
    for column in range(len(rows)):
        if not len(rows[column]):
            continue
        for team in teams:
            head = team[0]
            if keys[head] != keys[column] or (whole and len(rows[head]) != len(rows[column])):
                continue
            if _agree(said[head], said[column], shift[column] - shift[head]):
                team.append(column)
                of[column] = team
                break
        else:
            teams.append([column])
            of[column] = teams[-1]
    return Plan(rows, [launch_times(v, r) for v, r in zip(views, rows, strict=True)], shift, of)


def _calls(view: RankView, rows: I64, codes: dict[tuple[str, int], int]) -> I64:
    """Kind and size of the group of each call, as numbers."""
    calls, groups = view.trace.collectives, view.trace.groups
    table: dict[tuple[str, int], int] = {}
    out = np.empty(len(rows), np.int64)
    for place, row in enumerate(rows.tolist()):
        own = (calls.kind[row], int(calls.group[row]))
        if own not in table:
            size = len(groups[own[1]].ranks) if own[1] >= 0 else 0
            table[own] = codes.setdefault((canonical(own[0]), size), len(codes))
        out[place] = table[own]
    return out


def _agree(a: I64, b: I64, later: int) -> bool:
    """Whether two sequences are the same where they overlap, ``b`` beginning ``later`` positions after ``a``."""
    if later < 0:
        a, b, later = b, a, -later
    count = min(len(a) - later, len(b))
    return count >= MIN_OVERLAP * min(len(a), len(b)) and bool((a[later : later + count] == b[:count]).all())


def _shifts(matched: Matched, rows: list[I64]) -> tuple[list[int], list[int]]:
    """Positions of the ranks' first calls, from how far apart the same call stands in their sequences.

    Also which ranks the calls connect, as a number per rank: positions of others cannot be compared.
    """
    place = [dict(zip(r.tolist(), range(len(r)), strict=True)) for r in rows]
    near: list[dict[int, int]] = [{} for _ in rows]
    for number in range(len(matched.channels)):
        table = matched.first[np.flatnonzero(matched.channel == number)][:, None]
        if not len(table):
            continue
        table = table + np.arange(matched.size[matched.call[table[0, 0]]])
        members = matched.column[table[0]].tolist()
        for index, other in enumerate(members[1:], 1):
            one = members[0]
            apart = [place[one][a] - place[other][b] for a, b in matched.row[table[:, [0, index]]].tolist()]
            middle = int(np.median(apart))
            if np.mean(np.array(apart) == middle) >= CONSTANT:
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


def _stages(matched: Matched) -> list[int]:
    """Place of each rank among those it is joined to by point-to-point calls; 0 for one that has none."""
    chain = {rank: {rank} for rank in matched.ranks}
    for channel in matched.channels:
        if channel.point_to_point:
            joined = set().union(*(chain.get(r, {r}) for r in channel.ranks))
            for rank in joined:
                chain[rank] = joined
    return [sorted(chain[rank]).index(rank) for rank in matched.ranks]
