"""Recognise the same communication call on all ranks that took part in it.

A call's identity is, in this order: its Comms Id, its sequence number in its group, or its place in the order of
calls of its group, counted from the end of the window (the start is where ranks differ: what one rank launched before
the window runs into it). By order a shift between ranks is tried and must make kind, size and type agree. A group is
its rank list; its name differs between ranks and only its description tells apart two groups of the same ranks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.view import RankView

I64 = NDArray[np.int64]

__all__ = ["Channel", "Matched", "canonical", "is_point_to_point", "match"]

MAX_SHIFT = 16
"""How many calls two ranks' windows may be apart when only order identifies a call."""

STEADY_NS = 20_000
"""Scatter of the ends' distance that is no reason to prefer another shift."""

MIN_AGREEMENT = 0.9
"""Share of calls whose kind, size and type must agree under a shift."""

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


@dataclass(frozen=True, slots=True)
class Channel:
    """Ranks that call together, in an order all of them share."""

    ranks: tuple[int, ...]
    name: str
    point_to_point: bool = False


@dataclass(slots=True)
class Matched:
    """Calls recognised on every member present, in order of time on the first member."""

    ranks: tuple[int, ...]
    """Ranks of the window; the columns of ``rows``."""
    rows: NDArray[np.int32]
    """M x R: row in each rank's ``Collectives``; -1 where the rank takes no part."""
    kind: list[str]
    channel: NDArray[np.int32]
    channels: list[Channel]
    total: int = 0
    """Calls all ranks launched inside the window."""
    matched: int = 0
    methods: list[str] = field(default_factory=list)
    unmatched: Counter[str] = field(default_factory=Counter)
    extra: list[list[int]] = field(default_factory=list)
    """Per rank the rows of matched channels that some other member did not record: windows that differ."""

    def __len__(self) -> int:
        return len(self.rows)


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


def match(views: Sequence[RankView]) -> Matched:
    """Match the calls of one window's ranks. Linear in the number of calls but for the shifts tried."""
    ranks = tuple(v.rank for v in views)
    result = Matched(ranks, np.empty((0, len(ranks)), np.int32), [], np.empty(0, np.int32), [])
    result.extra = [[] for _ in ranks]
    calls: dict[Channel, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    kinds = [[canonical(k) for k in v.trace.collectives.kind] for v in views]
    for column, view in enumerate(views):
        for row, channel in _channels(view, kinds[column], ranks, result.unmatched):
            calls[channel][column].append(row)
            result.total += 1
    blocks: list[tuple[NDArray[np.int32], Channel]] = []
    for channel, members in calls.items():
        table, method, reason = _match_channel(views, kinds, channel, members)
        got = int((table >= 0).sum())
        result.matched += got
        for column, listed in members.items():
            result.extra[column] += sorted(set(listed) - set(table[:, column].tolist()))
        lost = sum(map(len, members.values())) - got
        if lost:
            result.unmatched[reason] += lost
        if got:
            blocks.append((table, channel))
            if method not in result.methods:
                result.methods.append(method)
    if blocks:
        _assemble(result, views, kinds, blocks)
    return result


def _channels(
    view: RankView, kinds: list[str], world: tuple[int, ...], reasons: Counter[str]
) -> list[tuple[int, Channel]]:
    """Each call of one rank that can be matched, with its channel; why the others cannot goes to ``reasons``."""
    calls, groups = view.trace.collectives, view.trace.groups
    launched = view.trace.events.launch[calls.event] >= 0
    ignore_launch = not view.device or not launched.any()
    known = [g for g in groups if g.ranks]
    size = view.trace.meta.world_size
    whole = tuple(range(size)) if size else world
    found = []
    for row in range(len(kinds)):
        index = int(calls.group[row])
        if not ignore_launch and not launched[row]:
            reasons["launched before the window"] += 1
            continue
        if index >= 0 and groups[index].ranks:
            ranks, name = groups[index].ranks, groups[index].description or groups[index].name
        elif len(known) == 1:
            ranks, name = known[0].ranks, known[0].description or known[0].name
        elif not known:
            ranks, name = whole, "all ranks"
        else:
            reasons["process group unknown"] += 1
            continue
        channel = Channel(tuple(ranks), name)
        if kinds[row] == "sendrecv" and int(calls.peer[row]) < 0 and len(ranks) > 2:
            kinds[row] = "all_to_all"  # the kernel that NCCL runs for it; a pair would have said its peer
        if is_point_to_point(kinds[row]):
            pair = _pair(view.rank, int(calls.peer[row]), kinds[row], channel.ranks)
            if pair is None:
                reasons["peer unknown"] += 1
                continue
            channel = Channel(pair, name, point_to_point=True)
        if len(set(channel.ranks) & set(world)) < 2:
            reasons["no other rank of the group was recorded"] += 1
            continue
        found.append((row, channel))
    return found


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


def _match_channel(
    views: Sequence[RankView], kinds: list[list[str]], channel: Channel, members: dict[int, list[int]]
) -> tuple[NDArray[np.int32], str, str]:
    """Table of matched rows (calls x ranks), the method used, and why the rest did not match."""
    columns = sorted(members)
    present = [v.rank for v in views if v.rank in channel.ranks]
    empty = np.empty((0, len(views)), np.int32)
    if len(columns) < len(present):
        return empty, "none", "some rank of the group recorded none"
    for method in ("comms_id", "seq"):
        keys = [_keys(views[c], kinds[c], members[c], method) for c in columns]
        if all(k is not None for k in keys):
            tables = [dict(zip(k, members[c], strict=True)) for k, c in zip(keys, columns, strict=True) if k]
            shared = [k for k in tables[0] if all(k in t for t in tables)]
            table = np.full((len(shared), len(views)), -1, np.int32)
            for column, lookup in zip(columns, tables, strict=True):
                table[:, column] = [lookup[k] for k in shared]
            return table, method, "recorded by some ranks only"
    signatures = [_signatures(views[c], kinds[c], members[c], channel.point_to_point) for c in columns]
    reference = int(np.argmin([len(s) for s in signatures]))
    ends = [views[c].trace.events.end[views[c].trace.collectives.event[members[c]]] for c in columns]
    shifts = [_shift(signatures[reference], s, (ends[reference], e)) for s, e in zip(signatures, ends, strict=True)]
    if any(s is None for s in shifts):
        return empty, "none", "calls of the group disagree in kind, size or type"
    # position counted from the end; a call survives where every member has it
    taken = [s or 0 for s in shifts]
    count = min(len(s) - t for s, t in zip(signatures, taken, strict=True))
    low = max(0, -min(taken))
    table = np.full((max(count - low, 0), len(views)), -1, np.int32)
    for column, shift in zip(columns, taken, strict=True):
        rows = members[column]
        chosen = rows[len(rows) - shift - count : len(rows) - shift - low]
        table[:, column] = chosen
    return table, "order", "recorded by some ranks only"


def _keys(view: RankView, kinds: list[str], rows: list[int], method: str) -> list[Hashable] | None:
    """A key per call, unique within the rank; None where the trace does not say."""
    calls = view.trace.collectives
    seen: Counter[Hashable] = Counter()
    keys: list[Hashable] = []
    for row in rows:
        said: Hashable = calls.comms_id[row] if method == "comms_id" else int(calls.seq[row])
        if said in ("", -1):
            return None
        base = (said, int(calls.seq[row]), kinds[row] if not is_point_to_point(kinds[row]) else "p2p")
        keys.append((*base, seen[base]))  # coalesced calls share a number: their order tells them apart
        seen[base] += 1
    if seen and max(seen.values()) > 8:
        return None  # not an identity of a call at all
    return keys


def _signatures(view: RankView, kinds: list[str], rows: list[int], point_to_point: bool) -> list[Hashable]:
    calls = view.trace.collectives
    if point_to_point:
        return [int(max(calls.in_elements[r], calls.out_elements[r])) for r in rows]
    return [(kinds[r], int(calls.in_elements[r]), int(calls.out_elements[r]), calls.dtype[r]) for r in rows]


def _shift(reference: list[Hashable], other: list[Hashable], ends: tuple[I64, I64]) -> int | None:
    """How many calls ``other`` has after the last one of ``reference``; None when no shift makes them agree.

    Steps repeat, and so do kinds and sizes: several shifts may agree. Of those the true one is known by the ends, which
    keep a constant distance whatever the clocks.
    """
    found: list[tuple[float, int]] = []
    for shift in sorted(range(-MAX_SHIFT, MAX_SHIFT + 1), key=abs):
        a = reference[: len(reference) + shift] if shift < 0 else reference
        b = other[: len(other) - shift] if shift > 0 else other
        count = min(len(a), len(b))
        if count < 1 or count < 0.5 * min(len(reference), len(other)):
            continue
        if sum(x == y for x, y in zip(a[-count:], b[-count:], strict=True)) < MIN_AGREEMENT * count:
            continue
        apart = ends[0][len(a) - count : len(a)] - ends[1][len(b) - count : len(b)]
        found.append((float(np.median(np.abs(apart - np.median(apart)))), shift))
    if not found:
        return None
    steadiest = min(found)
    # the smallest shift stands unless another fits far better
    return found[0][1] if found[0][0] <= 2.0 * steadiest[0] + STEADY_NS else steadiest[1]


def _assemble(
    result: Matched,
    views: Sequence[RankView],
    kinds: list[list[str]],
    blocks: list[tuple[NDArray[np.int32], Channel]],
) -> None:
    result.channels = [channel for _, channel in blocks]
    rows = np.concatenate([table for table, _ in blocks])
    channel = np.repeat(np.arange(len(blocks), dtype=np.int32), [len(table) for table, _ in blocks])
    starts = np.full(rows.shape, np.iinfo(np.int64).max)
    for column, view in enumerate(views):
        has = rows[:, column] >= 0
        events = view.trace.collectives.event[rows[has, column]]
        starts[has, column] = view.trace.events.start[events]
    order = np.argsort(starts.min(axis=1), kind="stable")
    result.rows, result.channel = rows[order], channel[order]
    first = (result.rows >= 0).argmax(axis=1)
    result.kind = [kinds[c][result.rows[m, c]] for m, c in enumerate(first)]
