"""What the peer number of a send or receive is: a rank of the job, or a place within the group.

torch writes ``Dst Rank`` and ``Src Rank`` as ranks of the job, other writers as places within the group. In a group of
ranks 0 to N-1 both are the same; in any other, numbers that can only be one of the two decide. A job's ranks run the
same software, so that evidence of one rank counts for all (:func:`agree_on_peers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rankscope.trace.columns import Piece, RankTrace

__all__ = ["CONTRADICTORY", "PLACE", "RANK", "REMARKS", "UNCLEAR", "agree_on_peers", "numbering", "peer_of", "resolved"]

RANK = "rank"
"""Peers are ranks of the job."""
PLACE = "place"
"""Peers are places within the group."""
UNCLEAR = "unclear"
"""Each number could be either, and the two differ."""
CONTRADICTORY = "contradictory"
"""Some numbers can only be ranks and some only places."""
REMARKS = {
    PLACE: "peers of sends and receives are numbered within their group",
    CONTRADICTORY: "peers of sends and receives are numbered in two ways; those that could be either are left unknown",
}
"""What a reader of the report should know of it."""


def numbering(said: Iterable[tuple[tuple[int, ...], int, int]], own: int | None) -> str:
    """How peers are numbered, by what cannot be otherwise.

    Args:
        said: (ranks of the group, the peer's number, the peer's place where the trace gives that too or -1).
        own: the rank of this trace, where it is known; it does not send to itself.

    Returns:
        :data:`RANK`, :data:`PLACE`, :data:`UNCLEAR`, :data:`CONTRADICTORY`, or nothing where both are the same.
    """
    found: set[str] = set()
    for ranks, number, place in said:
        size = len(ranks)
        if number < 0 or not ranks or ranks == tuple(range(size)):
            continue
        found.add(UNCLEAR)
        if 0 <= place < size and (number == place) != (number == ranks[place]):
            found.add(PLACE if number == place else RANK)
        elif number not in ranks:
            found |= {PLACE} if number < size else set()
        elif number >= size:
            found.add(RANK)
        elif own in ranks and (number == own) != (number == ranks.index(own)):
            found.add(PLACE if number == own else RANK)
    sure = found - {UNCLEAR}
    if len(sure) > 1:
        return CONTRADICTORY
    return next(iter(sure or found), "")


def resolved(ranks: tuple[int, ...], number: int, place: int, how: str) -> int:
    """Rank of the job that a peer is, -1 where it is unknown."""
    size = len(ranks)
    if number < 0:
        return ranks[place] if 0 <= place < size else -1
    if not ranks or how in {RANK, UNCLEAR, ""}:
        return number
    if how == PLACE:
        return ranks[number] if number < size else -1
    if number in ranks:
        return number if number >= size else -1
    return ranks[number] if number < size else -1


def agree_on_peers(traces: Sequence[RankTrace]) -> None:
    """Set in place how peers are numbered, where a rank's trace does not show it, from the other ranks of its window.

    What was unclear was taken for ranks of the job, as torch writes them.
    """
    windows: dict[tuple[int, int], list[RankTrace]] = {}
    for trace in traces:
        windows.setdefault((trace.attempt, trace.window), []).append(trace)
    for mates in windows.values():
        known = {trace.meta.peers for trace in mates} & {RANK, PLACE}
        for trace in mates:
            if trace.meta.peers == UNCLEAR and len(known) == 1:
                _renumber(trace, known.copy().pop())


def _renumber(trace: RankTrace, how: str) -> None:
    trace.meta.peers = how
    if how == RANK:
        return
    calls = trace.collectives
    for row, pieces in enumerate(calls.pieces):
        group = int(calls.group[row])
        ranks = trace.groups[group].ranks if group >= 0 else ()
        if pieces and ranks and ranks != tuple(range(len(ranks))):
            calls.pieces[row] = tuple(replace(p, peer=resolved(ranks, p.peer, -1, PLACE)) for p in pieces)
            calls.peer[row] = peer_of(calls.pieces[row])
    trace.notes.append(f"{REMARKS[PLACE]}, as other ranks show")


def peer_of(pieces: tuple[Piece, ...]) -> int:
    """The one peer of all pieces, -1 where there are several or it is unknown."""
    peers = {piece.peer for piece in pieces}
    return peers.pop() if len(peers) == 1 else -1
