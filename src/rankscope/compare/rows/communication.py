"""Collectives by kind and size: number, duration of their transfers and bus bandwidth, and separately their waits.

Between jobs of different sizes, groups of different sizes correspond to each other; the bus bandwidth takes them into
account.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from rankscope.compare.sides.noise import between_chance, combined, within_chance, within_run
from rankscope.compare.sides.side import Side, other_size
from rankscope.records.diff import DiffRow
from rankscope.records.rank_window import RankWindow

__all__ = ["communication_rows"]

Key = tuple[str, int, int, str]
"""Kind, bytes, ranks of the group (0 between jobs of different sizes), its name."""
F64 = NDArray[np.float64]


def communication_rows(before: Side, after: Side) -> list[DiffRow]:
    """Return a row for each kind of collective, and one for the time that they waited for the last rank."""
    if not (before.ranks and after.ranks):  # a report alone does not say which collectives there were
        return []
    sized = other_size(before, after) is None
    ours, theirs = (_calls(side.ranks, sized=sized) for side in (before, after))
    floor = before.usual_changes["collective"]
    rows = [_row(key, ours.get(key), theirs.get(key), floor) for key in sorted(set(ours) | set(theirs))]
    rows.sort(key=lambda row: (not row.told, -abs(row.change or 0.0)))
    return [*rows, *_waits(before, after)]


def _calls(ranks: Iterable[RankWindow], *, sized: bool) -> dict[Key, tuple[float, F64, F64]]:
    """Return calls per step, and of each call of each rank in a step the transfer in ms and the bus bandwidth in
    GB/s."""
    count: dict[Key, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    steps: dict[int, int] = defaultdict(int)
    transfer: dict[Key, list[float]] = defaultdict(list)
    bus: dict[Key, list[float]] = defaultdict(list)
    for own in ranks:
        steps[own.rank] += len(own.steps.number)
        calls, known = own.calls, dict[tuple[int, int, int, int], Key]()
        kinds = zip(calls.kind, calls.bytes, calls.size, calls.group, strict=True)
        for row, (kind, step) in enumerate(zip(kinds, calls.step, strict=True)):
            if step < 0:
                continue
            if kind not in known:
                known[kind] = (own.text(kind[0]), kind[1], kind[2] if sized else 0, own.text(kind[3]))
            key = known[kind]
            count[key][own.rank] += 1
            if calls.transfer_ns:
                took = calls.transfer_ns[row]
                transfer[key].append(took / 1e6)
                if took > 0 and calls.bus_bytes[row] >= 0:
                    bus[key].append(calls.bus_bytes[row] / took)
    return {
        key: (
            float(np.median([n / max(steps[rank], 1) for rank, n in by_rank.items()])),
            np.array(transfer[key]),
            np.array(bus[key]),
        )
        for key, by_rank in count.items()
    }


def _row(key: Key, one: tuple[float, F64, F64] | None, other: tuple[float, F64, F64] | None, usual: float) -> DiffRow:
    sides = [(0.0, np.empty(0), np.empty(0)) if side is None else side for side in (one, other)]
    times = [calls * float(np.median(transfer)) if len(transfer) else 0.0 for calls, transfer, _ in sides]
    single = [within_run(transfer) for _, transfer, _ in sides]
    least = min(sides[0][0], sides[1][0])
    floor, within = usual * min(times), least * combined(*single)
    noise = max(floor, within)
    counted = abs(sides[0][0] - sides[1][0]) > 1e-9
    change = times[1] - times[0]
    chance = max(between_chance(change, floor), within_chance(change, sides[0][1], sides[1][1], within))
    words = [f"{sides[0][0]:g} -> {sides[1][0]:g} a step" if counted else f"{sides[0][0]:g} a step"]
    if all(len(bus) for _, _, bus in sides):
        old, new = (float(np.median(bus)) for _, _, bus in sides)
        words.append(f"bus {old:,.1f} -> {new:,.1f} GB/s")
    return DiffRow(
        kind="collective",
        name=_name(key),
        unit="ms",
        before=times[0] if one else None,
        after=times[1] if other else None,
        change=change,
        noise=noise,
        chance=None if counted else chance,
        told=counted or abs(change) > noise,
        status="changed" if one and other else "new" if other else "gone",
        detail="; ".join(words),
    )


def _name(key: Key) -> str:
    kind, size, ranks, group = key
    amount = f" {size / 1e6:,.3g} MB" if size >= 0 else ""
    named = f" ({group})" if group and group not in {"default_pg", "0"} else ""
    return f"{kind}{amount}{f', group of {ranks}' if ranks else ''}{named}"


def _waits(before: Side, after: Side) -> list[DiffRow]:
    """Return the row of the rank whose waiting changed most. Its noise is unknown, since it depends on the other
    ranks."""
    ours, theirs = (_waited(side.ranks) for side in (before, after))
    shared = sorted(set(ours) & set(theirs))
    if not shared:
        return []
    most = max(shared, key=lambda rank: abs(theirs[rank] - ours[rank]))
    return [
        DiffRow(
            kind="wait",
            name="waiting for other ranks in collectives",
            unit="ms",
            before=ours[most],
            after=theirs[most],
            change=theirs[most] - ours[most],
            ranks=[most],
            detail="follows from what the last rank does, and costs only what the replay says",
        )
    ]


def _waited(ranks: Iterable[RankWindow]) -> dict[int, float]:
    total: dict[int, float] = defaultdict(float)
    steps: dict[int, int] = defaultdict(int)
    for own in ranks:
        if own.calls.wait_ns:
            steps[own.rank] += len(own.steps.number)
            total[own.rank] += sum(n for n, step in zip(own.calls.wait_ns, own.calls.step, strict=True) if step >= 0)
    return {rank: ns / 1e6 / steps[rank] for rank, ns in total.items() if steps[rank]}
