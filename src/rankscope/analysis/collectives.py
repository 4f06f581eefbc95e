"""Recognise the same communication call on all ranks that took part in it.

A call's identity is, in this order: its Comms Id, its sequence number in its group, or its place in the order of
calls of its group, counted from the end of the window (the start is where ranks differ: what one rank launched before
the window runs into it). By order a shift between ranks is tried and must make kind, size and type agree. A group is
its rank list; its name differs between ranks and only its description tells apart two groups of the same ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.channels import Channel, canonical, channels_of, is_point_to_point
from rankscope.analysis.view import RankView

I64 = NDArray[np.int64]

__all__ = ["Channel", "Matched", "canonical", "is_point_to_point", "match"]

MAX_SHIFT = 16
"""How many calls two ranks' windows may be apart when only order identifies a call."""

STEADY_NS = 20_000
"""Scatter of the ends' distance that is no reason to prefer another shift."""

MIN_AGREEMENT = 0.9
"""Share of calls whose kind, size and type must agree under a shift."""


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
    known: list[list[int]] = field(default_factory=list)
    """Per rank the rows of launched calls of known groups, matched or not."""
    extra: list[list[int]] = field(default_factory=list)
    """Per rank the rows of matched channels that some other member did not record: windows that differ."""

    def __len__(self) -> int:
        return len(self.rows)


def match(views: Sequence[RankView]) -> Matched:
    """Match the calls of one window's ranks. Linear in the number of calls but for the shifts tried."""
    ranks = tuple(v.rank for v in views)
    result = Matched(ranks, np.empty((0, len(ranks)), np.int32), [], np.empty(0, np.int32), [])
    result.extra, result.known = [[] for _ in ranks], [[] for _ in ranks]
    calls: dict[Channel, dict[int, I64]] = defaultdict(dict)
    spelled: dict[str, str] = {}
    kinds = [[spelled.setdefault(k, canonical(k)) for k in v.trace.collectives.kind] for v in views]
    for column, view in enumerate(views):
        for channel, rows in channels_of(view, kinds[column], ranks, result.unmatched, result.known[column]).items():
            calls[channel][column] = rows
            result.total += len(rows)
    blocks: list[tuple[NDArray[np.int32], Channel]] = []
    for channel, members in calls.items():
        table, method, reason = _match_channel(views, kinds, channel, members)
        got = int((table >= 0).sum())
        result.matched += got
        for column, listed in members.items():
            result.extra[column] += np.setdiff1d(listed, table[:, column]).tolist()
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


def _match_channel(
    views: Sequence[RankView], kinds: list[list[str]], channel: Channel, members: dict[int, I64]
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
            tables = [dict(zip(k, members[c].tolist(), strict=True)) for k, c in zip(keys, columns, strict=True) if k]
            shared = [k for k in tables[0] if all(k in t for t in tables)]
            table = np.full((len(shared), len(views)), -1, np.int32)
            for column, lookup in zip(columns, tables, strict=True):
                table[:, column] = [lookup[k] for k in shared]
            return table, method, "recorded by some ranks only"
    codes: dict[Hashable, int] = {}
    signatures = [_signatures(views[c], kinds[c], members[c], channel.point_to_point, codes) for c in columns]
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


def _keys(view: RankView, kinds: list[str], rows: I64, method: str) -> list[Hashable] | None:
    """A key per call, unique within the rank; None where the trace does not say."""
    calls = view.trace.collectives
    seen: Counter[Hashable] = Counter()
    keys: list[Hashable] = []
    for row in rows.tolist():
        said: Hashable = calls.comms_id[row] if method == "comms_id" else int(calls.seq[row])
        if said in ("", -1):
            return None
        base = (said, int(calls.seq[row]), kinds[row] if not is_point_to_point(kinds[row]) else "p2p")
        keys.append((*base, seen[base]))  # coalesced calls share a number: their order tells them apart
        seen[base] += 1
    if seen and max(seen.values()) > 8:
        return None  # not an identity of a call at all
    return keys


def _signatures(view: RankView, kinds: list[str], rows: I64, point_to_point: bool, codes: dict[Hashable, int]) -> I64:
    """What must agree, as numbers from ``codes``."""
    calls = view.trace.collectives
    inputs, outputs = calls.in_elements[rows].tolist(), calls.out_elements[rows].tolist()
    if point_to_point:
        return np.maximum(calls.in_elements[rows], calls.out_elements[rows]).astype(np.int64)
    said = [(kinds[r], a, b, calls.dtype[r]) for r, a, b in zip(rows.tolist(), inputs, outputs, strict=True)]
    return np.array([codes.setdefault(s, len(codes)) for s in said], np.int64)


def _shift(reference: I64, other: I64, ends: tuple[I64, I64]) -> int | None:
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
        if int((a[-count:] == b[-count:]).sum()) < MIN_AGREEMENT * count:
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
