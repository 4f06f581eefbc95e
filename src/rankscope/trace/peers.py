"""Meaning of the peer number of a send or receive: a rank of the job, or a position within the group.

torch writes ``Dst Rank`` and ``Src Rank`` as ranks of the job, other writers as positions within the group. In a group
of ranks 0 to N-1 both are equal; in any other, numbers that are possible in one meaning only decide. A job's ranks run
the same software, so evidence from one rank applies to all (:func:`agree_on_peers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rankscope.trace.columns import Piece, RankTrace

__all__ = ["CONTRADICTORY", "PLACE", "RANK", "REMARKS", "UNCLEAR", "agree_on_peers", "numbering", "peer_of", "resolved"]

RANK = "rank"
"""Peers are ranks of the job."""
PLACE = "place"
"""Peers are positions within the group."""
UNCLEAR = "unclear"
"""Each number has two possible meanings that differ."""
CONTRADICTORY = "contradictory"
"""Some numbers can only be ranks and some only positions."""
REMARKS = {
    PLACE: "peers of sends and receives are numbered within their group",
    CONTRADICTORY: "peers of sends and receives are numbered in two ways; those that could be either are left unknown",
}
"""Remarks on this for the reader of the report."""


def numbering(peers: Iterable[tuple[tuple[int, ...], int, int]], own: int | None) -> str:
    """Determine how peers are numbered, by numbers that are possible in one meaning only.

    Args:
        peers: (ranks of the group, the peer's number, the peer's position if the trace has that too, or -1).
        own: the rank of this trace, if known; it does not send to itself.

    Returns:
        :data:`RANK`, :data:`PLACE`, :data:`UNCLEAR`, :data:`CONTRADICTORY`, or empty if both are equal.
    """
    found: set[str] = set()
    for ranks, number, place in peers:
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
    """Return the rank of the job of a peer, -1 if unknown."""
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
    """Set in place how peers are numbered, if a rank's trace does not show it, from the other ranks of its window.

    Unclear numbers had been taken as ranks of the job, as torch writes them.
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
    """Return the one peer of all pieces, -1 if there are several or it is unknown."""
    peers = {piece.peer for piece in pieces}
    return peers.pop() if len(peers) == 1 else -1
