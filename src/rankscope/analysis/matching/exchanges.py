"""Match sends and receives that were issued as one kernel (``batch_isend_irecv``).

Such a kernel may send to one rank and receive from another, so that it belongs to no pair of ranks. The n-th message
from one rank to another is identified on both sides by order, with gaps for lost records. Kernels that are connected by
messages, directly or through other kernels, form one call. A member of such a call waits only for the members with
which it exchanges messages: in a ring, for its two neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.communicators import Communicator
from rankscope.analysis.matching.consensus import agree_on_program
from rankscope.analysis.matching.known_clocks import KnownClocks
from rankscope.analysis.matching.messages import pair_messages, pair_on_one_clock
from rankscope.analysis.matching.sequences import CallSequence
from rankscope.analysis.rank.view import RankView
from rankscope.trace.columns import Piece

__all__ = ["Block", "match_exchanges", "with_plain_calls"]

I64 = NDArray[np.int64]

NOBODY = np.empty((3, 0), np.int64)

_Join = tuple[float, int, int, int, int, int]
"""A message that joins two kernels: distance of their ends (ns, 0 where unknown), its number between the two ranks,
column and row of the sender, column and row of the receiver."""


@dataclass(slots=True)
class Block:
    """Matched calls of one channel."""

    columns: list[int]
    """Columns of the ranks that took part, ascending."""
    table: I64
    """``table[c, m]``: the row by which member ``m`` took part in call ``c``, -1 where it has no record of it."""
    channel: Communicator
    awaits: I64 = field(default_factory=lambda: NOBODY)
    """Shape (3, n): call, member, and member that it waits for, in calls whose members wait for some of the others
    only."""


@dataclass(slots=True)
class _Messages:
    """Messages from one rank to another as one of the two recorded them, in order."""

    rows: list[int] = field(default_factory=list)
    elements: list[int] = field(default_factory=list)


def with_plain_calls(calls: dict[Communicator, dict[int, I64]]) -> None:
    """Move plain sends and receives of a group to its batched channel, if it has one; changes ``calls`` in place.

    What one rank issued as one batch, its peer may have issued call by call.
    """
    for batched in [c for c in calls if c.batched]:
        plain = [
            c
            for c in calls
            if c.point_to_point
            and not c.batched
            and (c.name, c.number) == (batched.name, batched.number)
            and set(c.ranks) <= set(batched.ranks)
        ]
        for channel in plain:
            for column, rows in calls.pop(channel).items():
                known = calls[batched].get(column, rows[:0])
                calls[batched][column] = np.union1d(known, rows)


def match_exchanges(
    views: Sequence[RankView],
    kinds: Sequence[list[str]],
    channel: Communicator,
    members: dict[int, I64],
    clocks: KnownClocks,
) -> list[Block]:
    """Match the point-to-point calls of one group.

    Args:
        views: the ranks of the window.
        kinds: canonical kinds of their calls.
        channel: the group.
        members: column -> rows of its calls.
        clocks: clock offsets known from other calls.

    Returns:
        Matched calls, channel by channel.
    """
    column_of = {views[c].rank: c for c in members}
    sent: dict[tuple[int, int], _Messages] = defaultdict(_Messages)
    received: dict[tuple[int, int], _Messages] = defaultdict(_Messages)
    said: dict[tuple[int, int], set[int]] = defaultdict(set)
    for column, rows in members.items():
        own = views[column].rank
        for row in rows.tolist():
            for piece in _pieces(views[column], kinds[column][row], row, channel.ranks):
                ends = (own, piece.peer) if piece.sends else (piece.peer, own)
                messages = (sent if piece.sends else received)[ends]
                messages.rows.append(row)
                messages.elements.append(piece.elements)
                said[column, row].add(piece.peer)
    joins: list[_Join] = []
    for source, target in sorted(sent.keys() & received.keys()):
        here, there = column_of[source], column_of[target]
        one, other = sent[source, target], received[source, target]
        sized = min(one.elements + other.elements) >= 0
        both = [_sequence(views[here], one, sized), _sequence(views[there], other, sized)]
        ahead = clocks.ahead(here, there, both[1].end)
        pairs = None if ahead is None else pair_on_one_clock(both[0], both[1], ahead)
        pairs = pairs or pair_messages(*both)
        if pairs is None:
            program = agree_on_program(both)
            pairs = tuple(program.table[(program.table >= 0).all(axis=1)].T)
        # The surest joins come first: kernels of different turns may overlap, but do not end together.
        apart = np.zeros(len(pairs[0])) if ahead is None else (both[0].end[pairs[0]] - (both[1].end + ahead)[pairs[1]])
        places = zip(np.abs(apart).tolist(), *(p.tolist() for p in pairs), strict=True)
        joins += [(ns, n, here, one.rows[a], there, other.rows[b]) for n, (ns, a, b) in enumerate(places)]
    return _blocks(views, channel, said, sorted(set(joins)))


def _pieces(view: RankView, kind: str, row: int, ranks: tuple[int, ...]) -> list[Piece]:
    """Return the messages of a call to and from other ranks of its group."""
    calls = view.trace.collectives
    others = [r for r in ranks if r != view.rank]
    only = others[0] if len(others) == 1 else -1
    pieces = calls.pieces[row]
    if not pieces:
        # Without recorded messages, a call has one peer, and its kind tells the direction.
        peer = int(calls.peer[row])
        pieces = tuple(Piece(sends, peer) for sends in (True, False) if kind != ("recv" if sends else "send"))
    known = [Piece(p.sends, p.peer if p.peer >= 0 else only, p.elements) for p in pieces]
    return [p for p in known if p.peer in others]


def _sequence(view: RankView, messages: _Messages, sized: bool) -> CallSequence:
    """Return the messages as a sequence whose rows are their indices."""
    events, count = view.trace.events, len(messages.rows)
    event = view.trace.collectives.event[np.array(messages.rows, np.int64)]
    unsaid, never = np.full(count, -1, np.int64), np.zeros(count, np.bool_)
    size = np.array(messages.elements, np.int64) if sized else np.zeros(count, np.int64)
    return CallSequence(
        rows=np.arange(count),
        start=events.start[event],
        end=events.start[event] + events.duration[event],
        must=size,
        may=size,
        together=never,
        symmetric=never,
        step=np.append(view.trace.steps.number, -1)[events.step[event].astype(np.int64)].astype(np.int64),
        seq=unsaid,
        comms_id=unsaid,
    )


def _blocks(
    views: Sequence[RankView],
    channel: Communicator,
    said: dict[tuple[int, int], set[int]],
    joins: list[_Join],
) -> list[Block]:
    """Group calls by the ranks that take part: members that recorded the call, and peers that these name."""
    home: dict[tuple[int, int], dict[int, int]] = {}
    for _, _, here, row, there, other in joins:
        one, two = home.setdefault((here, row), {here: row}), home.setdefault((there, other), {there: other})
        # A rank takes part in a call with one kernel: a message that would add a second kernel of a rank joins nothing.
        if one is two or one.keys() & two.keys():
            continue
        if len(one) < len(two):
            one, two = two, one
        one |= two
        home.update(dict.fromkeys(two.items(), one))
    partners: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for _, _, here, row, there, other in joins:
        if home[here, row] is home[there, other]:
            partners[id(home[here, row])] |= {(here, there), (there, here)}
    calls: dict[tuple[int, ...], list[dict[int, int]]] = defaultdict(list)
    for call in {id(call): call for call in home.values() if len(call) > 1}.values():
        ranks = {views[c].rank for c in call}.union(*(said[member] for member in call.items()))
        calls[tuple(sorted(ranks))].append(call)
    return [_block(channel, ranks, several, partners) for ranks, several in calls.items()]


def _block(
    channel: Communicator,
    ranks: tuple[int, ...],
    calls: list[dict[int, int]],
    partners: dict[int, set[tuple[int, int]]],
) -> Block:
    columns = sorted(set().union(*calls))
    place = {column: at for at, column in enumerate(columns)}
    table = np.full((len(calls), len(columns)), -1, np.int64)
    for number, call in enumerate(calls):
        for column, row in call.items():
            table[number, place[column]] = row
    # Order by the median position over the members, because a member that lost a record counts its later calls lower.
    turn = np.full(table.shape, np.nan)
    for at in range(len(columns)):
        has = np.flatnonzero(table[:, at] >= 0)
        turn[has[np.argsort(table[has, at])], at] = np.arange(len(has))
    order = np.argsort(np.nanmedian(turn, axis=1), kind="stable")
    awaits = [
        (number, place[one], place[other])
        for number, index in enumerate(order.tolist())
        if len(known := partners[id(calls[index])]) < len(calls[index]) * (len(calls[index]) - 1)
        for one, other in sorted(known)
    ]
    return Block(
        columns,
        table[order],
        Communicator(ranks, channel.name, point_to_point=True, number=channel.number),
        np.array(awaits, np.int64).reshape(-1, 3).T,
    )
