"""Which calls of a rank can be matched at all, and with whom: kinds in one spelling, groups by their rank lists."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
    """Ranks that call together, in an order all of them share."""

    ranks: tuple[int, ...]
    name: str = field(compare=False)
    """Of the first rank that was seen to use it: names differ between ranks."""
    point_to_point: bool = False
    number: int = 0
    """Tells apart groups of the same ranks."""
    guessed: bool = False
    """Its calls do not say what they are: taken for calls of all ranks, unless the times speak against it."""
    batched: bool = False
    """Point to point, between any of the ranks: a call sends and receives several messages (``exchanges``)."""
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # of thousands of ranks, each time it is looked up, it would take longer than all else
        object.__setattr__(self, "_hash", hash((self.ranks, self.point_to_point, self.number)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(slots=True)
class Memberships:
    """Lists of ranks as the ranks of a window name them. Each of a thousand ranks names the same thousand: a list is
    looked at once, where it is one object (``trace.files.shared``)."""

    world: frozenset[int]
    """Ranks of the window."""
    _sorted: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """id of a list -> the list, so that the id stays its own, and the list in order."""
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
        """One object for each communicator; ``ranks`` come from here."""
        key = id(ranks), point_to_point, number, guessed, batched
        if key not in self._channels:
            self._channels[key] = Communicator(ranks, name, point_to_point, number, guessed, batched)
        return self._channels[key]

    def everybody(self, size: int) -> tuple[int, ...]:
        """All ranks of a job of this size."""
        if size not in self._everybody:
            ranks = tuple(range(size))
            self._everybody[size] = self._known.setdefault(ranks, ranks)
        return self._everybody[size]

    def pair(self, source: int, target: int) -> tuple[int, ...]:
        """Two ranks, in this order: one object."""
        return self._known.setdefault((source, target), (source, target))

    def sorted(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """The same group in whatever order a rank lists it: one object."""
        if id(ranks) not in self._sorted:
            ordered = tuple(sorted(ranks))
            self._sorted[id(ranks)] = ranks, self._known.setdefault(ordered, ordered)
        return self._sorted[id(ranks)][1]

    def shared(self, ranks: tuple[int, ...]) -> bool:
        """Whether two of the ranks and more were recorded."""
        if id(ranks) not in self._shared:
            self._shared[id(ranks)] = ranks, len(self.world.intersection(ranks)) > 1
        return self._shared[id(ranks)][1]


def canonical(kind: str) -> str:
    """One spelling per collective: ``_allgather_base``, ``ncclDevKernel_AllGather_RING_LL`` -> ``all_gather``."""
    plain = re.sub(r"[^a-z]", "", kind.lower())
    for name in _KINDS:
        if name.replace("_", "") in plain:
            return name
    return kind


def is_point_to_point(kind: str) -> bool:
    """Whether the canonical kind involves two ranks only."""
    return kind in {"send", "recv", "sendrecv"}


def channels_of(
    view: RankView,
    kinds: list[str],
    world: tuple[int, ...],
    reasons: Counter[str],
    known: list[int],
    numbers: dict[int, int],
    memberships: Memberships,
) -> dict[Communicator, I64]:
    """Rows of one rank that can be matched, by communicator. Rows of the same group, kind, peer and state are decided
    once.

    Args:
        view: the rank.
        kinds: of its calls; calls that turn out to be of another kind are changed.
        world: the ranks of the window.
        reasons: receives why other rows cannot be matched, and how many.
        known: receives the rows of groups whose ranks are known, recorded or not.
        numbers: what tells groups of the same ranks apart, by index of the group (``groups.number_groups``).
        memberships: one for all ranks of the window.
    """
    calls = view.trace.collectives
    if not kinds:
        return {}
    launched = view.trace.events.launch[calls.event] >= 0
    on_device = view.trace.events.stream[calls.event] >= 0
    if not launched[on_device].any():
        launched |= on_device  # no launch at all is known
    if not view.device:
        launched[:] = True
    _, code = np.unique(np.array(kinds), return_inverse=True)
    batched = np.array([bool(p) and _is_batched(k, p) for k, p in zip(kinds, calls.pieces, strict=True)], np.int64)
    columns = (calls.group, code, calls.peer, launched, batched)
    table = np.stack([np.asarray(column).astype(np.int64) for column in columns])
    _, first, which = np.unique(table, axis=1, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    found: dict[Communicator, list[I64]] = defaultdict(list)
    for number, example in enumerate(first.tolist()):
        rows = np.flatnonzero(which == number)
        kind, channel = "", None
        if launched[example]:
            kind, channel = _channel(view, example, kinds[example], world, numbers, memberships)
        if channel is not None or kind == LONELY:
            known.extend(rows.tolist())
        if channel is None:
            reasons[kind or ("launched before the window" if on_device[example] else BESIDE)] += len(rows)
            continue
        if kind != kinds[example]:
            for row in rows.tolist():
                kinds[row] = kind
        found[channel].append(rows)
    return {channel: np.sort(np.concatenate(parts)) for channel, parts in found.items()}


def _channel(
    view: RankView,
    row: int,
    kind: str,
    world: tuple[int, ...],
    numbers: dict[int, int],
    memberships: Memberships,
) -> tuple[str, Communicator | None]:
    """(kind, channel) of a call, or (why there is none, None)."""
    groups, index, peer = view.trace.groups, int(view.trace.collectives.group[row]), view.trace.collectives.peer[row]
    known = [g for g in groups if g.ranks]
    if index >= 0 and groups[index].ranks:
        ranks, name = groups[index].ranks, groups[index].description or groups[index].name
    elif len({g.ranks for g in known}) == 1:
        # several groups of the same ranks: whichever it was, the same ranks took part, in the order of the program
        ranks, name = known[0].ranks, known[0].description or known[0].name
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
        # NCCL runs this kernel for all-to-alls and for pairs; a kernel with arguments would say which
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
    """Whether a call is known to send and to receive, or to have several peers: then it belongs to no pair."""
    peers = {piece.peer for piece in pieces if piece.peer >= 0}
    return is_point_to_point(kind) and bool(peers) and (kind == "sendrecv" or len(peers) > 1)


def _pair(rank: int, peer: int, kind: str, ranks: tuple[int, ...]) -> tuple[int, int] | None:
    """(source, target) of a point-to-point call."""
    if peer < 0 or peer == rank:
        others = [r for r in ranks if r != rank]
        if len(others) != 1:
            return None
        peer = others[0]
    if kind == "sendrecv":
        return (min(rank, peer), max(rank, peer))
    return (rank, peer) if kind == "send" else (peer, rank)
