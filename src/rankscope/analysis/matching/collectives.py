"""Match each communication call on all ranks that took part in it.

The calls of each process group are aligned with gaps (``consensus``), so that a lost record costs its own call only.
The identity of a call in the trace (communication id, sequence number, step) is tested against order and ends and may
be rejected (``hypotheses``). A group is identified by its rank list; several groups of the same ranks are told apart by
use and name (``groups``). Point-to-point calls are matched by order and peers (calls of several messages:
``exchanges``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.communicators import (
    Communicator,
    Memberships,
    canonical,
    channels_of,
    is_point_to_point,
)
from rankscope.analysis.matching.consensus import agree_on_program
from rankscope.analysis.matching.exchanges import Block, match_exchanges, with_plain_calls
from rankscope.analysis.matching.groups import number_groups
from rankscope.analysis.matching.hypotheses import ORDER
from rankscope.analysis.matching.known_clocks import KnownClocks
from rankscope.analysis.matching.once import Once
from rankscope.analysis.matching.pair_clocks import ENDS_NS
from rankscope.analysis.matching.sequences import CallSequence
from rankscope.analysis.matching.signatures import (
    SYMMETRIC,
    TOGETHER,
    CallSignatures,
    Codes,
    call_signatures,
    must_agree,
    spelled_kinds,
)
from rankscope.analysis.matching.unsaid_pairs import pair_by_ends
from rankscope.analysis.rank.view import RankView
from rankscope.statistics.grouping import grouped, ranges

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

__all__ = ["SYMMETRIC", "TOGETHER", "UNSAID", "Communicator", "Matched", "canonical", "is_point_to_point", "match"]

UNSAID = "kernels without arguments: the peers are unknown"
ENDS = "ends"
LONE = "recorded by some ranks only"
UNLIKE = "calls of the group disagree in kind, size or type"


@dataclass(slots=True)
class Matched:
    """Calls matched on at least two ranks, in order of time, and their *members*: one row for each call and rank.

    A call whose record some rank lost has only the other ranks as members. In a mesh a rank takes part in few of all
    calls, so that memory grows with the number of members, not of calls times ranks.
    """

    ranks: tuple[int, ...]
    """Ranks of the window; a column is an index into them."""
    kind: list[str] = field(default_factory=list)
    """Canonical kind of each call; ``channel`` also has one value a call."""
    channel: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    call: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Call of each member; ``column`` and ``row`` also have one value a member. Members are ordered by call, then
    column."""
    column: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    row: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Row in the rank's ``Collectives``."""
    channels: list[Communicator] = field(default_factory=list)
    total: int = 0
    """Number of calls that were launched in the window and can be matched, summed over the ranks."""
    matched: int = 0
    by_ends: int = 0
    """Number of calls whose peers are not recorded, and were found by the ends of their kernels."""
    methods: list[str] = field(default_factory=list)
    unmatched: Counter[str] = field(default_factory=Counter)
    known: list[NDArray[np.int32]] = field(default_factory=list)
    """Per rank: rows of launched calls of groups whose ranks are known, matched or not."""
    extra: list[list[int]] = field(default_factory=list)
    """Per rank: rows of matched channels that no other member recorded, due to different windows or lost records."""
    lost: list[int] = field(default_factory=list)
    """Per rank: number of lost records, that is, calls of its groups that most recorded between calls that it has
    too."""
    contradicted: dict[str, list[int]] = field(default_factory=dict)
    """Identity (``comms_id``, ``seq``, ``group names``) -> ranks on which it was rejected, because order, ends of calls
    or step marks contradict it."""
    awaits: I64 = field(default_factory=lambda: np.empty((2, 0), np.int64))
    """Shape (2, n): members, and members of the same call for which they wait. It lists only calls in which members
    wait for some of the others, as in a ring; in all other calls each waits for all."""
    partial: NDArray[np.bool_] = field(init=False)
    """Per call: whether it is listed in ``awaits``."""
    first: I64 = field(init=False)
    """The members of call ``m`` are ``first[m]:first[m + 1]``."""
    _by_column: I64 = field(init=False)
    _bounds: I64 = field(init=False)

    def __post_init__(self) -> None:
        self.first = np.searchsorted(self.call, np.arange(len(self.channel) + 1)).astype(np.int64)
        self.partial = np.zeros(len(self.channel), np.bool_)
        self.partial[self.call[self.awaits[0]]] = True
        self._by_column, self._bounds = grouped(self.column, len(self.ranks))

    def __len__(self) -> int:
        return len(self.channel)

    @property
    def size(self) -> I64:
        """Number of members of each call."""
        return np.diff(self.first)

    def of_channels(self) -> dict[int, I64]:
        """Columns of the ranks that call in each channel, ascending."""
        count = len(self.ranks)
        pairs = np.unique(self.channel[self.call].astype(np.int64) * count + self.column)
        channels, first = np.unique(pairs // count, return_index=True)
        return dict(zip(channels.tolist(), np.split(pairs % count, first[1:]), strict=True)) if len(pairs) else {}

    def last_awaited(self, arrival: F64) -> F64:
        """For each member the latest arrival among the members it waits for, itself included; unit as ``arrival``."""
        latest: F64 = arrival.copy()
        for members in self.by_size(~self.partial):
            latest[members] = arrival[members].max(axis=1, keepdims=True)
        np.maximum.at(latest, self.awaits[0], arrival[self.awaits[1]])
        return latest

    def of(self, column: int) -> I64:
        """Members that belong to the rank of this column, in order of calls."""
        return self._by_column[self._bounds[column] : self._bounds[column + 1]]

    def at(self, calls: I64, column: int) -> I64:
        """Members by which a rank takes part in calls. It must take part in all of them."""
        mine = self.of(column)
        return mine[np.searchsorted(self.call[mine], calls)]

    def by_size(self, calls: NDArray[np.bool_] | None = None) -> list[I64]:
        """Members of the (chosen) calls as tables of shape (calls, members), one table for each number of members."""
        size, chosen = self.size, np.ones(len(self), np.bool_) if calls is None else calls
        return [
            self.first[np.flatnonzero(chosen & (size == n))][:, None] + np.arange(n) for n in np.unique(size[chosen])
        ]


def match(views: Sequence[RankView]) -> Matched:
    """Match the calls of one window's ranks."""
    ranks = tuple(v.rank for v in views)
    result = Matched(ranks, extra=[[] for _ in ranks], lost=[0] * len(ranks))
    calls: dict[Communicator, dict[int, I64]] = defaultdict(dict)
    once = Once()
    kinds = [once(spelled_kinds, v.trace.collectives.kind) for v in views]
    memberships = Memberships(frozenset(ranks))
    numbers = number_groups(views, kinds, memberships)
    for column, view in enumerate(views):
        numbered = numbers.number[column]
        known = [np.empty(0, np.int64)]
        found, kinds[column] = channels_of(
            view, kinds[column], ranks, result.unmatched, known, numbered, memberships, once
        )
        result.known.append(np.concatenate(known).astype(np.int32))
        for channel, rows in found.items():
            calls[channel][column] = rows
            result.total += len(rows)
    with_plain_calls(calls)
    codes = Codes()
    signatures = [call_signatures(v, k, codes, once) for v, k in zip(views, kinds, strict=True)]
    contradicted: dict[str, set[int]] = defaultdict(set)
    contradicted["group names"].update(ranks[c] for c in numbers.renamed)
    blocks: list[Block] = []
    clocks, asked = KnownClocks(views), any(channel.batched for channel in calls)
    # Collectives come first, because they show the clock offsets.
    for channel, members in sorted(calls.items(), key=lambda item: item[0].point_to_point):
        columns = sorted(members)
        total = sum(map(len, members.values()))
        if len(columns) < 2:
            result.unmatched["some rank of the group recorded none"] += total
            continue
        if channel.batched:
            exchanged = match_exchanges(views, kinds, channel, members, clocks)
            _note_exchanges(result, members, exchanged)
            blocks += exchanged
            result.methods += [ORDER] if exchanged and ORDER not in result.methods else []
            continue
        must = must_agree([signatures[c] for c in columns], [members[c] for c in columns])
        sequences = [
            _sequence(views[c], signatures[c], members[c], own, point_to_point=channel.point_to_point)
            for c, own in zip(columns, must, strict=True)
        ]
        program = agree_on_program(sequences)
        have = program.table >= 0
        kept = have.sum(axis=1) >= 2
        if channel.guessed and not _all_took_part(sequences, program.table):
            paired = _paired(result, views, kinds, channel, members)
            blocks += paired
            result.unmatched[UNSAID] += 0 if paired else total
            continue
        usual = 2 * have.sum(axis=1) >= len(columns)  # of a call that fewer have, those are wrong, and none is missing
        for place, column in enumerate(columns):
            taken = program.table[kept, place]
            if (taken >= 0).sum() < len(members[column]):
                result.extra[column] += np.setdiff1d(members[column], taken).tolist()
            result.lost[column] += _holes(have[usual, place])
        unlike = sum(len(members[columns[m]]) for m in program.unmatched) if kept.any() else total
        result.unmatched[UNLIKE] += unlike
        result.unmatched[LONE] += total - int(have[kept].sum()) - unlike
        for identity, against in program.contradicted.items():
            contradicted[identity].update(ranks[columns[m]] for m in against)
        if kept.any():
            blocks.append(Block(columns, program.table[kept], channel))
            if asked and not channel.point_to_point:
                clocks.learn(columns, program.table[kept & _symmetric(program.table, columns, signatures)])
            result.methods += [m for m in program.methods if m not in result.methods]
    result.unmatched = +result.unmatched
    result.contradicted = {identity: sorted(against) for identity, against in contradicted.items() if against}
    return _assembled(result, views, kinds, blocks) if blocks else result


def _paired(
    result: Matched,
    views: Sequence[RankView],
    kinds: list[list[str]],
    channel: Communicator,
    members: dict[int, I64],
) -> list[Block]:
    """Pair sends and receives whose peers are unknown by their ends; empty if that is not possible in one way only."""
    blocks = [
        Block(
            list(columns),
            rows,
            Communicator(
                tuple(views[c].rank for c in columns), channel.name, point_to_point=True, number=channel.number
            ),
        )
        for columns, rows in pair_by_ends(views, members).items()
    ]
    for block in blocks:
        result.by_ends += len(block.table)
        for place, column in enumerate(block.columns):
            kinds[column] = [*kinds[column]]
            for row in block.table[:, place].tolist():
                kinds[column][row] = "sendrecv"
    if blocks:
        _note_exchanges(result, members, blocks)
        result.methods += [ENDS] if ENDS not in result.methods else []
    return blocks


def _symmetric(table: I64, columns: list[int], signatures: list[CallSignatures]) -> NDArray[np.bool_]:
    """Which calls of a table end on all ranks at the same time, shape (calls,)."""
    found = np.zeros(len(table), np.bool_)
    for place, column in enumerate(columns):
        has = table[:, place] >= 0
        found[has] = signatures[column].symmetric[table[has, place]]
    return found


def _note_exchanges(result: Matched, members: dict[int, I64], blocks: list[Block]) -> None:
    """Record which batched calls of a group were not matched, and which records are missing."""
    for column, rows in members.items():
        taken = [np.empty(0, np.int64)]
        for block in blocks:
            if column in block.columns:
                own = block.table[:, block.columns.index(column)]
                taken.append(own[own >= 0])
                result.lost[column] += _holes(own >= 0)
        alone = np.setdiff1d(rows, np.concatenate(taken))
        result.unmatched[LONE] += len(alone)
        if blocks:
            result.extra[column] += alone.tolist()


def _holes(have: NDArray[np.bool_]) -> int:
    """Number of calls without a record of a member, between its first and its last recorded call."""
    places = np.flatnonzero(have)
    return int(places[-1] - places[0]) + 1 - len(places) if len(places) else 0


def _all_took_part(sequences: Sequence[CallSequence], table: I64) -> bool:
    """Whether calls of unrecorded kind ran on all members at once, as those of an all-to-all do and those of pairs do
    not."""
    whole = (table >= 0).all(axis=1)  # next to lost records, fewer ranks have the call
    if whole.sum() <= len(table) / 2:
        return False
    where = [np.searchsorted(s.rows, table[whole, place]) for place, s in enumerate(sequences)]
    start, end = (
        np.stack([getattr(s, name)[at] for s, at in zip(sequences, where, strict=True)], axis=1)
        for name in ("start", "end")
    )
    ahead = np.median(end - end[:, :1], axis=0).astype(np.int64)
    return bool(((start - ahead).max(axis=1) <= (end - ahead).min(axis=1) + ENDS_NS).all())


def _sequence(
    view: RankView, signatures: CallSignatures, rows: I64, must: I64, *, point_to_point: bool
) -> CallSequence:
    calls, events = view.trace.collectives, view.trace.events
    event = calls.event[rows]
    start = events.start[event]
    # One counter numbers all point-to-point calls of a rank, whatever the peer: it does not identify the calls of a
    # pair.
    unsaid = np.full(len(rows), -1, np.int64)
    return CallSequence(
        rows=rows,
        start=start,
        end=start + events.duration[event],
        must=must,
        may=signatures.may[rows],
        together=signatures.together[rows],
        symmetric=signatures.symmetric[rows],
        step=np.append(view.trace.steps.number, -1)[events.step[event].astype(np.int64)].astype(np.int64),
        seq=unsaid if point_to_point else calls.seq[rows].astype(np.int64),
        comms_id=unsaid if point_to_point else signatures.comms_id[rows],
    )


def _assembled(
    result: Matched,
    views: Sequence[RankView],
    kinds: list[list[str]],
    blocks: list[Block],
) -> Matched:
    """Return ``result`` with the calls of all channels, in order of time."""
    begun, size, column, row, kind = [], [], [], [], []
    awaits, members = [np.empty((2, 0), np.int64)], 0
    for block in blocks:
        columns, table = block.columns, block.table
        starts = np.full(table.shape, np.iinfo(np.int64).max)
        for at, c in enumerate(columns):
            has = table[:, at] >= 0
            starts[has, at] = views[c].trace.events.start[views[c].trace.collectives.event[table[has, at]]]
        begun.append(starts.min(axis=1))
        have = table >= 0
        size.append(have.sum(axis=1))
        place_of = np.nonzero(have)[1]
        column.append(np.array(columns, np.int32)[place_of])
        row.append(table[have].astype(np.int32))
        number = members - 1 + np.cumsum(have.ravel()).reshape(have.shape)
        call_, *pair = block.awaits
        awaits.append(np.stack([number[call_, at] for at in pair]))
        members += int(have.sum())
        first = have.argmax(axis=1)
        kind += [
            kinds[columns[c]][r]
            for c, r in zip(first.tolist(), table[np.arange(len(table)), first].tolist(), strict=True)
        ]
    order = np.argsort(np.concatenate(begun), kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    sizes = np.concatenate(size)
    call = np.repeat(place, sizes)
    by_call = ranges((np.cumsum(sizes) - sizes)[order], sizes[order])
    moved = np.empty(len(by_call), np.int64)
    moved[by_call] = np.arange(len(by_call))
    channel = np.repeat(np.arange(len(blocks), dtype=np.int32), [len(b.table) for b in blocks])
    return replace(
        result,
        kind=[kind[i] for i in order.tolist()],
        channel=channel[order],
        call=call[by_call],
        column=np.concatenate(column)[by_call],
        row=np.concatenate(row)[by_call],
        channels=[b.channel for b in blocks],
        awaits=moved[np.concatenate(awaits, axis=1)],
        matched=len(call),
    )
