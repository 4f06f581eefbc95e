"""Recognise the same communication call on all ranks that took part in it.

A call's identity is, in this order: its Comms Id, its sequence number in its group, or its place in the order of
calls of its group, counted from the end of the window (the start is where ranks differ: what one rank launched before
the window runs into it). By order a shift between ranks is tried and must make kind, size and type agree. A group is
its rank list; its name differs between ranks and only its description tells apart two groups of the same ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.communicators import Communicator, canonical, channels_of, is_point_to_point
from rankscope.analysis.rank.view import RankView

I64 = NDArray[np.int64]

__all__ = ["Communicator", "Matched", "canonical", "is_point_to_point", "match"]

MAX_SHIFT = 16
"""How many calls two ranks' windows may be apart when only order identifies a call."""

STEADY_NS = 120_000
"""Divided by the number of calls: scatter of the ends' distance that is no reason to prefer another shift. Of few calls
chance makes any shift look steady; of many a wrong one shows, as it adds what the steps differ to what the ends do."""

CERTAIN_NS = 1_000
"""No less than this: not even the ends of one call agree better."""

SAMPLE = 500
"""The last calls of a group, from which the scatter of the ends' distance is taken."""

MIN_AGREEMENT = 0.9
"""Share of calls whose kind, size and type must agree under a shift."""

MOST_COALESCED = 8
"""Calls of one rank that may share a key; more, and it is no key."""


@dataclass(slots=True)
class Matched:
    """Calls recognised on every member present, in order of time; and their *members*, a row for each call and rank.

    In a mesh a rank takes part in few of all calls: memory grows with the members, not with calls times ranks.
    """

    ranks: tuple[int, ...]
    """Ranks of the window; a column is an index into them."""
    kind: list[str] = field(default_factory=list)
    """One a call, as the next two."""
    channel: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    call: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """One a member, as the next two; members are in order of call, then column."""
    column: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    row: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Row in the rank's ``Collectives``."""
    channels: list[Communicator] = field(default_factory=list)
    total: int = 0
    """Calls all ranks launched inside the window."""
    matched: int = 0
    methods: list[str] = field(default_factory=list)
    unmatched: Counter[str] = field(default_factory=Counter)
    known: list[list[int]] = field(default_factory=list)
    """Per rank the rows of launched calls of known groups, matched or not."""
    extra: list[list[int]] = field(default_factory=list)
    """Per rank the rows of matched channels that some other member did not record: windows that differ."""
    first: I64 = field(init=False)
    """Members of call ``m``: ``first[m]:first[m + 1]``."""
    _by_column: I64 = field(init=False)
    _bounds: I64 = field(init=False)

    def __post_init__(self) -> None:
        self.first = np.searchsorted(self.call, np.arange(len(self.channel) + 1)).astype(np.int64)
        self._by_column = np.argsort(self.column, kind="stable")
        self._bounds = np.searchsorted(self.column[self._by_column], np.arange(len(self.ranks) + 1))

    def __len__(self) -> int:
        return len(self.channel)

    @property
    def size(self) -> I64:
        """How many members each call has."""
        return np.diff(self.first)

    def of(self, column: int) -> I64:
        """Members that belong to a rank, in order of calls."""
        return self._by_column[self._bounds[column] : self._bounds[column + 1]]

    def at(self, calls: I64, column: int) -> I64:
        """The members by which a rank takes part in calls; it must."""
        mine = self.of(column)
        return mine[np.searchsorted(self.call[mine], calls)]

    def by_size(self, calls: NDArray[np.bool_] | None = None) -> list[I64]:
        """Members of the (chosen) calls as tables, calls x members, one for each number of members."""
        size, chosen = self.size, np.ones(len(self), np.bool_) if calls is None else calls
        return [
            self.first[np.flatnonzero(chosen & (size == n))][:, None] + np.arange(n) for n in np.unique(size[chosen])
        ]


@dataclass(slots=True)
class _Calls:
    """What tells one rank's calls apart, as numbers that mean the same on all ranks."""

    kind: I64
    said: I64
    """Kind and type."""
    comms_id: I64
    """-1 where the trace has none."""


def match(views: Sequence[RankView]) -> Matched:
    """Match the calls of one window's ranks. Linear in the number of calls but for the shifts tried."""
    ranks = tuple(v.rank for v in views)
    result = Matched(ranks, known=[[] for _ in ranks], extra=[[] for _ in ranks])
    calls: dict[Communicator, dict[int, I64]] = defaultdict(dict)
    spelled: dict[str, str] = {}
    kinds = [_spelled(v.trace.collectives.kind, spelled) for v in views]
    for column, view in enumerate(views):
        for channel, rows in channels_of(view, kinds[column], ranks, result.unmatched, result.known[column]).items():
            calls[channel][column] = rows
            result.total += len(rows)
    codes: dict[object, int] = {}
    told = [_told(v, k, codes) for v, k in zip(views, kinds, strict=True)]
    blocks: list[tuple[list[int], I64, Communicator]] = []
    for channel, members in calls.items():
        table, method, reason = _match_channel(views, told, channel, members)
        for place, (column, listed) in enumerate(sorted(members.items())):
            result.extra[column] += np.setdiff1d(listed, table[:, place]).tolist()
        lost = sum(map(len, members.values())) - table.size
        if lost:
            result.unmatched[reason] += lost
        if len(table):
            blocks.append((sorted(members), table, channel))
            if method not in result.methods:
                result.methods.append(method)
    return _assembled(result, views, kinds, blocks) if blocks else result


def _spelled(kinds: list[str], known: dict[str, str]) -> list[str]:
    for kind in set(kinds) - known.keys():
        known[kind] = canonical(kind)
    return [known[k] for k in kinds]


def _told(view: RankView, kinds: list[str], codes: dict[object, int]) -> _Calls:
    """``codes`` is shared by all ranks."""

    def coded(values: Sequence[object]) -> I64:
        for value in set(values) - codes.keys():
            codes[value] = len(codes)
        return np.fromiter(map(codes.__getitem__, values), np.int64, len(values))

    calls = view.trace.collectives
    plain = {k: "p2p" if is_point_to_point(k) else k for k in set(kinds)}
    ids = coded(calls.comms_id)
    ids[ids == codes.setdefault("", -1)] = -1
    return _Calls(coded([plain[k] for k in kinds]), coded(list(zip(kinds, calls.dtype, strict=True))), ids)


def _match_channel(
    views: Sequence[RankView], told: Sequence[_Calls], channel: Communicator, members: dict[int, I64]
) -> tuple[I64, str, str]:
    """Table of matched rows (calls x members by column), the method used, and why the rest did not match."""
    columns = sorted(members)
    rows = [members[c] for c in columns]
    present = [v.rank for v in views if v.rank in channel.ranks]
    empty = np.empty((0, len(columns)), np.int64)
    if len(columns) < len(present):
        return empty, "none", "some rank of the group recorded none"
    for method in ("comms_id", "seq"):
        table = _by_key([_keys(views[c], told[c], members[c], method) for c in columns], rows)
        if table is not None:
            return table, method, "recorded by some ranks only"
    signatures = [_signatures(views[c], told[c], members[c], channel.point_to_point) for c in columns]
    reference = int(np.argmin([len(r) for r in rows]))
    ends = [views[c].trace.events.end[views[c].trace.collectives.event[members[c]]] for c in columns]
    steps = [_steps(views[c], members[c]) for c in columns]
    shifts = [
        _shift(signatures[reference], s, (ends[reference], e), (steps[reference], n))
        for s, e, n in zip(signatures, ends, steps, strict=True)
    ]
    if any(s is None for s in shifts):
        return empty, "none", "calls of the group disagree in kind, size or type"
    # position counted from the end; a call survives where every member has it
    taken = [s or 0 for s in shifts]
    count = min(len(r) - t for r, t in zip(rows, taken, strict=True))
    low = max(0, -min(taken))
    if count <= low:
        return empty, "order", "recorded by some ranks only"
    found = [r[len(r) - shift - count : len(r) - shift - low] for r, shift in zip(rows, taken, strict=True)]
    return np.stack(found, axis=1), "order", "recorded by some ranks only"


def _keys(view: RankView, told: _Calls, rows: I64, method: str) -> I64 | None:
    """What identifies each call of a rank (calls x 3); None where the trace does not say."""
    seq = view.trace.collectives.seq[rows]
    said = told.comms_id[rows] if method == "comms_id" else seq
    return None if (said == -1).any() else np.stack((said, seq, told.kind[rows]), axis=1)


def _by_key(keys: list[I64 | None], rows: list[I64]) -> I64 | None:
    """Rows of the calls that every member has, in the order of the first; None where keys do not tell calls apart."""
    known = [k for k in keys if k is not None]
    if len(known) < len(keys):
        return None
    owner = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    _, code = np.unique(np.concatenate(known), axis=0, return_inverse=True)
    # coalesced calls share a number: their order tells them apart
    order = np.lexsort((owner, code.reshape(-1)))
    same = (np.diff(code.reshape(-1)[order], prepend=-1) == 0) & (np.diff(owner[order], prepend=-1) == 0)
    nth = np.empty(len(order), np.int64)
    nth[order] = np.arange(len(order)) - np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
    if nth.max(initial=0) >= MOST_COALESCED:
        return None  # not an identity of a call at all
    code = code.reshape(-1) * MOST_COALESCED + nth
    shared = np.bincount(code)[code] == len(rows)
    lists = np.split(np.arange(len(code)), np.cumsum([len(r) for r in rows])[:-1])
    wanted = code[lists[0]][shared[lists[0]]]
    found = []
    for mine, own in zip(lists, rows, strict=True):
        sorter = np.argsort(code[mine])
        found.append(own[sorter[np.searchsorted(code[mine], wanted, sorter=sorter)]])
    return np.stack(found, axis=1)


def _signatures(view: RankView, told: _Calls, rows: I64, point_to_point: bool) -> I64:
    """What must agree (3 x calls, of a pair 1 x calls)."""
    calls = view.trace.collectives
    inputs, outputs = calls.in_elements[rows].astype(np.int64), calls.out_elements[rows].astype(np.int64)
    if point_to_point:
        return np.maximum(inputs, outputs)[None, :]
    return np.stack((told.said[rows], inputs, outputs))


def _steps(view: RankView, rows: I64) -> I64:
    """Number of the step each call belongs to, -1 outside the recorded ones."""
    trace = view.trace
    index = trace.events.step[trace.collectives.event[rows]].astype(np.int64)
    return np.append(trace.steps.number, -1)[index].astype(np.int64)


def _shift(reference: I64, other: I64, ends: tuple[I64, I64], steps: tuple[I64, I64]) -> int | None:
    """How many calls ``other`` has after the last one of ``reference``; None when no shift makes them agree.

    Steps repeat, and so do kinds and sizes: several shifts may agree. Of those the true one is known by the ends, which
    keep a constant distance whatever the clocks. Before that, by the steps: where both ranks recorded the same steps, a
    shift that keeps each call in its step stands. The ends of a CPU backend scatter by more than wrong shifts add.
    """
    found: list[tuple[float, int]] = []
    least = min(len(ends[0]), len(ends[1]))
    allowed = max(STEADY_NS / max(least, 1), CERTAIN_NS)
    for shift in sorted(range(-MAX_SHIFT, MAX_SHIFT + 1), key=abs):
        last_a, last_b = len(ends[0]) + min(shift, 0), len(ends[1]) - max(shift, 0)
        count = min(last_a, last_b)
        if count < 1 or count < 0.5 * least:
            continue
        same = (reference[:, last_a - count : last_a] == other[:, last_b - count : last_b]).all(axis=0)
        if int(same.sum()) < MIN_AGREEMENT * count:
            continue
        if shift == 0 and np.array_equal(*steps) and (steps[0] >= 0).all():
            return 0  # nothing is left over
        sample = min(count, SAMPLE)
        apart = ends[0][last_a - sample : last_a] - ends[1][last_b - sample : last_b]
        found.append((float(np.median(np.abs(apart - np.median(apart)))), shift))
        if found[0][0] <= allowed:
            break  # no other could be preferred
    if not found:
        return None
    steadiest = min(found)
    # the smallest shift stands unless another fits far better
    return found[0][1] if found[0][0] <= 2.0 * steadiest[0] + allowed else steadiest[1]


def _assembled(
    result: Matched,
    views: Sequence[RankView],
    kinds: list[list[str]],
    blocks: list[tuple[list[int], I64, Communicator]],
) -> Matched:
    """``result`` with the calls of all channels, in order of time."""
    begun, size, column, row, kind = [], [], [], [], []
    for columns, table, _ in blocks:
        starts = [
            views[c].trace.events.start[views[c].trace.collectives.event[r]]
            for c, r in zip(columns, table.T, strict=True)
        ]
        begun.append(np.min(starts, axis=0))
        size.append(np.full(len(table), len(columns)))
        column.append(np.tile(np.array(columns, np.int32), len(table)))
        row.append(table.astype(np.int32).ravel())
        kind += [kinds[columns[0]][r] for r in table[:, 0].tolist()]
    order = np.argsort(np.concatenate(begun), kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    call = np.repeat(place, np.concatenate(size))
    by_call = np.argsort(call, kind="stable")
    channel = np.repeat(np.arange(len(blocks), dtype=np.int32), [len(table) for _, table, _ in blocks])
    return replace(
        result,
        kind=[kind[i] for i in order.tolist()],
        channel=channel[order],
        call=call[by_call],
        column=np.concatenate(column)[by_call],
        row=np.concatenate(row)[by_call],
        channels=[c for _, _, c in blocks],
        matched=len(call),
    )
