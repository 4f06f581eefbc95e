"""Decide which calls of a rank can be matched, and with which ranks: canonical kinds, and groups by their rank
lists."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.once import Once, distinct
from rankscope.analysis.rank.view import RankView
from rankscope.trace.columns import Piece

I64 = NDArray[np.int64]

__all__ = ["Communicator", "Memberships", "canonical", "channels_of", "is_point_to_point"]

_KINDS = (
    "reduce_scatter",
    "all_reduce",
    "all_gather",
    "all_to_all",
    "broadcast",
    "barrier",
    "gather",
    "scatter",
    "reduce",
    "sendrecv",
    "send",
    "recv",
)


BESIDE = "on the host, not issued by a thread that launches device work"
LONELY = "no other rank of the group was recorded"


@dataclass(frozen=True, slots=True)
class Communicator:
    """Ranks that communicate with each other, in an order of calls that all of them share."""

    ranks: tuple[int, ...]
    name: str = field(compare=False)
    """Name on the first rank that was seen to use it, since names differ between ranks."""
    point_to_point: bool = False
    number: int = 0
    """Tells groups of the same ranks apart."""
    guessed: bool = False
    """Whether the kind of its calls is not recorded. They are taken for calls of all ranks unless their times
    contradict it."""
    batched: bool = False
    """Whether it holds point-to-point calls between any of its ranks, each of several messages (``exchanges``)."""
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Hashing thousands of ranks at each look-up would take longer than everything else.
        object.__setattr__(self, "_hash", hash((self.ranks, self.point_to_point, self.number)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(slots=True)
class Memberships:
    """Rank lists of the groups of one window, each kept as one object.

    Each of a thousand ranks names the same thousand ranks. A list is examined once where it is one object
    (``trace.files.shared``).
    """

    world: frozenset[int]
    """Ranks of the window."""
    _sorted: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """id of a list -> the list, kept so that its id is not reused, and the same list sorted."""
    _shared: dict[int, tuple[tuple[int, ...], bool]] = field(default_factory=dict)
    _known: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    _everybody: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _channels: dict[tuple[int, bool, int, bool, bool], Communicator] = field(default_factory=dict)

    def channel(
        self,
        ranks: tuple[int, ...],
        name: str,
        *,
        point_to_point: bool = False,
        number: int = 0,
        guessed: bool = False,
        batched: bool = False,
    ) -> Communicator:
        """Return the one object of a communicator. ``ranks`` must come from this object's methods."""
        key = id(ranks), point_to_point, number, guessed, batched
        if key not in self._channels:
            self._channels[key] = Communicator(ranks, name, point_to_point, number, guessed, batched)
        return self._channels[key]

    def everybody(self, size: int) -> tuple[int, ...]:
        """Return all ranks of a job of this size."""
        if size not in self._everybody:
            ranks = tuple(range(size))
            self._everybody[size] = self._known.setdefault(ranks, ranks)
        return self._everybody[size]

    def pair(self, source: int, target: int) -> tuple[int, ...]:
        """Return two ranks in this order, as one shared object."""
        return self._known.setdefault((source, target), (source, target))

    def sorted(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ranks in ascending order, as one shared object."""
        if id(ranks) not in self._sorted:
            ordered = tuple(sorted(ranks))
            self._sorted[id(ranks)] = ranks, self._known.setdefault(ordered, ordered)
        return self._sorted[id(ranks)][1]

    def shared(self, ranks: tuple[int, ...]) -> bool:
        """Whether at least two of the ranks were recorded."""
        if id(ranks) not in self._shared:
            self._shared[id(ranks)] = ranks, len(self.world.intersection(ranks)) > 1
        return self._shared[id(ranks)][1]


def canonical(kind: str) -> str:
    """Return the canonical spelling: ``_allgather_base``, ``ncclDevKernel_AllGather_RING_LL`` -> ``all_gather``."""
    plain = re.sub(r"[^a-z]", "", kind.lower())
    for name in _KINDS:
        if name.replace("_", "") in plain:
            return name
    return kind


def is_point_to_point(kind: str) -> bool:
    """Whether a call of this canonical kind involves two ranks only."""
    return kind in {"send", "recv", "sendrecv"}


def channels_of(
    view: RankView,
    kinds: list[str],
    world: tuple[int, ...],
    reasons: Counter[str],
    known: list[I64],
    numbers: dict[int, int],
    memberships: Memberships,
    once: Once,
) -> tuple[dict[Communicator, I64], list[str]]:
    """Return the rows of one rank's calls that can be matched, by communicator, and the kinds of all calls, some of
    which turn out to be others than recorded.

    Calls with the same group, kind, peer and launch state are decided together.

    Args:
        view: the rank.
        kinds: canonical kinds of its calls.
        world: the ranks of the window.
        reasons: receives why other rows cannot be matched, and how many.
        known: receives the rows of groups whose ranks are known, whether or not other members were recorded.
        numbers: number that tells groups of the same ranks apart, by index of the group (``groups.number_groups``).
        memberships: one object for all ranks of the window.
        once: likewise.
    """
    calls = view.trace.collectives
    if not kinds:
        return {}, kinds
    launched = view.trace.events.launch[calls.event] >= 0
    on_device = view.trace.events.stream[calls.event] >= 0
    if not launched[on_device].any():
        launched |= on_device  # no launch is recorded at all
    if not view.device:
        launched[:] = True
    code = once(distinct, kinds)[1]
    batched = np.zeros(len(kinds), np.int64)
    if any(calls.pieces):
        batched[:] = [bool(p) and _is_batched(k, p) for k, p in zip(kinds, calls.pieces, strict=True)]
    columns = (calls.group, code, calls.peer, launched, batched)
    key = np.zeros(len(kinds), np.int64)  # orders calls by the first column, then by the next
    for column in columns:
        value = np.asarray(column).astype(np.int64)
        value -= value.min()
        key = key * (value.max() + 1) + value
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    found: dict[Communicator, list[I64]] = defaultdict(list)
    settled = kinds
    for number, example in enumerate(first.tolist()):
        rows = np.flatnonzero(which == number)
        kind, channel = "", None
        if launched[example]:
            kind, channel = _channel(view, example, kinds[example], world, numbers, memberships)
        if channel is not None or kind == LONELY:
            known.append(rows)
        if channel is None:
            reasons[kind or ("launched before the window" if on_device[example] else BESIDE)] += len(rows)
            continue
        if kind != kinds[example]:
            settled = [*kinds] if settled is kinds else settled
            for row in rows.tolist():
                settled[row] = kind
        found[channel].append(rows)
    return {channel: np.sort(np.concatenate(parts)) for channel, parts in found.items()}, settled


def _channel(
    view: RankView,
    row: int,
    kind: str,
    world: tuple[int, ...],
    numbers: dict[int, int],
    memberships: Memberships,
) -> tuple[str, Communicator | None]:
    """Return (kind, channel) of a call, or (reason why it has none, None)."""
    groups, index, peer = view.trace.groups, int(view.trace.collectives.group[row]), view.trace.collectives.peer[row]
    known = [g for g in groups if g.ranks]
    if index >= 0 and groups[index].ranks:
        ranks, name = groups[index].ranks, groups[index].title
    elif len({g.ranks for g in known}) == 1:
        # Several groups of the same ranks: the same ranks took part in the same order, whichever group it was.
        ranks, name = known[0].ranks, known[0].title
    elif not known:
        size = view.trace.meta.world_size
        ranks, name = memberships.everybody(size) if size else world, "all ranks"
    else:
        return "process group unknown", None
    ranks = memberships.sorted(ranks)
    number = numbers.get(index, 0)
    channel = memberships.channel(ranks, name, number=number)
    if _is_batched(kind, view.trace.collectives.pieces[row]):
        channel = memberships.channel(ranks, name, point_to_point=True, number=number, batched=True)
    elif kind == "sendrecv" and peer < 0 and len(ranks) > 2:
        # NCCL runs this kernel for all-to-alls and for pairs. If its arguments were recorded, they would tell which.
        kind, channel = "all_to_all", memberships.channel(ranks, name, number=number, guessed=True)
    if is_point_to_point(kind) and not channel.batched:
        pair = _pair(view.rank, int(peer), kind, channel.ranks)
        if pair is None:
            return "peer unknown", None
        channel = memberships.channel(memberships.pair(*pair), name, point_to_point=True, number=number)
    if not memberships.shared(channel.ranks):
        return LONELY, None
    return kind, channel


def _is_batched(kind: str, pieces: tuple[Piece, ...]) -> bool:
    """Whether a call is known to send and receive, or to have several peers, so that it belongs to no single pair."""
    peers = {piece.peer for piece in pieces if piece.peer >= 0}
    return is_point_to_point(kind) and bool(peers) and (kind == "sendrecv" or len(peers) > 1)


def _pair(rank: int, peer: int, kind: str, ranks: tuple[int, ...]) -> tuple[int, int] | None:
    """Return (source, target) of a point-to-point call; None where the peer is unknown."""
    if peer < 0 or peer == rank:
        others = [r for r in ranks if r != rank]
        if len(others) != 1:
            return None
        peer = others[0]
    if kind == "sendrecv":
        return (min(rank, peer), max(rank, peer))
    return (rank, peer) if kind == "send" else (peer, rank)
