"""Collectives by kind and size: number, duration of their transfers and bus bandwidth, and separately their waits.

Between jobs of different sizes, groups of different sizes correspond to each other; the bus bandwidth takes them into
account.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of one kind in one run."""

    steps: dict[int, list[int]] = field(default_factory=dict)
    """Rank -> number of calls in each recorded step."""
    transfer: F64 = field(default_factory=lambda: np.empty(0))
    """Of each call of each rank, ms."""
    bus: F64 = field(default_factory=lambda: np.empty(0))
    """Bus bandwidth of those for which it is defined, GB/s."""

    @property
    def per_step(self) -> float:
        """Median over the ranks of their mean number."""
        return float(np.median([np.mean(own) for own in self.steps.values()])) if self.steps else 0.0

    def apart(self, other: _Calls) -> bool:
        """Whether a rank makes more of them in each step of one run than in any of the other. Where records were lost,
        the number varies between the steps of a run, and then between runs."""
        pairs = [(own, other.steps[rank]) for rank, own in self.steps.items() if rank in other.steps]
        if not pairs:
            return abs(self.per_step - other.per_step) > 1e-9
        return any(min(a) > max(b) or max(a) < min(b) for a, b in pairs)


def _calls(ranks: Iterable[RankWindow], *, sized: bool) -> dict[Key, _Calls]:
    """Return the calls of each kind that were made in a recorded step."""
    count: dict[Key, dict[int, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    steps: dict[int, int] = defaultdict(int)
    transfer: dict[Key, list[float]] = defaultdict(list)
    bus: dict[Key, list[float]] = defaultdict(list)
    for own in ranks:
        first = steps[own.rank]
        steps[own.rank] += len(own.steps.number)
        calls, known = own.calls, dict[tuple[int, int, int, int], Key]()
        kinds = zip(calls.kind, calls.bytes, calls.size, calls.group, strict=True)
        for row, (kind, step) in enumerate(zip(kinds, calls.step, strict=True)):
            if step < 0:
                continue
            if kind not in known:
                known[kind] = (own.text(kind[0]), kind[1], kind[2] if sized else 0, own.text(kind[3]))
            key = known[kind]
            count[key][own.rank][first + step] += 1
            if calls.transfer_ns:
                took = calls.transfer_ns[row]
                transfer[key].append(took / 1e6)
                if took > 0 and calls.bus_bytes[row] >= 0:
                    bus[key].append(calls.bus_bytes[row] / took)
    return {
        key: _Calls(
            {rank: [own[step] for step in range(steps[rank])] for rank, own in by_rank.items()},
            np.array(transfer[key]),
            np.array(bus[key]),
        )
        for key, by_rank in count.items()
    }


def _row(key: Key, one: _Calls | None, other: _Calls | None, usual: float) -> DiffRow:
    sides = (one or _Calls(), other or _Calls())
    counts = [side.per_step for side in sides]
    lengths = [float(np.median(side.transfer)) if len(side.transfer) else 0.0 for side in sides]
    times = [count * length for count, length in zip(counts, lengths, strict=True)]
    single = [within_run(side.transfer) for side in sides]
    floor, within = usual * min(times), min(counts) * combined(*single)
    noise = max(floor, within)
    counted = one is None or other is None or one.apart(other)
    longer = min(counts) * (lengths[1] - lengths[0])
    chance = max(between_chance(longer, floor), within_chance(longer, sides[0].transfer, sides[1].transfer, within))
    words = [f"{counts[0]:.4g} -> {counts[1]:.4g} a step" if counted else f"{counts[0]:.4g} a step"]
    if all(len(side.bus) for side in sides):
        old, new = (float(np.median(side.bus)) for side in sides)
        words.append(f"bus {old:,.1f} -> {new:,.1f} GB/s")
    return DiffRow(
        kind="collective",
        name=_name(key),
        unit="ms",
        before=times[0] if one else None,
        after=times[1] if other else None,
        change=times[1] - times[0],
        noise=noise,
        chance=None if counted else chance,
        told=counted or abs(longer) > noise,
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
