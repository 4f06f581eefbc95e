"""Compute by kind: kernels that are new or gone, run more often, or take longer.

Kinds are paired by operator, its input shapes, module and the kernel's name; the rest without the kernel (the library
chose another one), then without shapes, without the module (it is called otherwise), and by operator alone. Modules
count if both runs recorded them. Durations are compared only for kernels without overlap with communication. Kernels
that overlap it in one of the runs are kept apart, because a collective that only waits makes them longer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rankscope.compare.rows.device_speed import DeviceSpeed, Scatter, device_speed, scatter_of
from rankscope.compare.rows.uses import Key, Use, Uses, paired
from rankscope.compare.sides.noise import KERNEL_DEVIATIONS, between_chance, combined, student, student_chance
from rankscope.compare.sides.side import Side
from rankscope.records.diff import DiffRow
from rankscope.statistics.chance import simes

__all__ = ["PACE", "work_rows"]


PACE = "pace of all kernels alike"
"""Name of the row with the common change of all kernels."""
LIKELY = 0.05
"""Probability from which on a change is not significant in any case, so that the larger of two probabilities need not
be computed for each kind of each of a thousand ranks."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Change of one kind on one rank, or of several together: ms per step."""

    ms: float = 0.0
    own_ms: float = 0.0
    """Without the common change of all kernels of the rank."""
    beside_ms: float = 0.0
    """The part that only overlap with communication adds."""
    floor: float = 0.0
    """Usual difference between runs of one program."""
    variance: float = 0.0
    """Variance of ``own_ms``, by the scatter within the runs."""
    freedom: float = math.inf

    @property
    def noise(self) -> float:
        """Size up to which this change alone is not significant."""
        return max(self.floor, student(self.freedom) * math.sqrt(self.variance)) if self.variance else self.floor

    @property
    def least(self) -> float:
        """The smaller one of the change itself and the change relative to all others; 0 if their signs differ."""
        return min(abs(self.ms), abs(self.own_ms)) if self.ms * self.own_ms > 0 else 0.0

    @property
    def chance(self) -> float:
        """Probability of such a change between two runs of one program."""
        if not self.least:
            return 1.0
        between = between_chance(self.least, self.floor, KERNEL_DEVIATIONS)
        if not self.variance or between > LIKELY:
            return between
        within = student_chance(self.least / math.sqrt(self.variance), self.freedom)
        return max(within, between)


def work_rows(before: Side, after: Side) -> list[DiffRow]:
    """Return a row for each operator, shapes and module, one for kernels that overlapped communication, and one for the
    pace."""
    if not (before.ranks and after.ranks):  # a report alone does not say which kernels there were
        return []
    ours, theirs = paired(before.ranks, after.ranks)
    ranks = sorted({own.rank for own in before.ranks} & {own.rank for own in after.ranks})
    sides = [{rank: _of_rank(uses, rank) for rank in ranks} for uses in (ours, theirs)]
    speeds = {rank: device_speed(sides[0][rank], sides[1][rank]) for rank in ranks}
    named: dict[tuple[str, str], list[Key]] = defaultdict(list)
    for key in sorted(set(ours) | set(theirs)):
        named[_name(key), key[2]].append(key)
    rows, beside = [], defaultdict[int, float](float)
    for (name, module), keys in named.items():
        changes: dict[int, list[_Change]] = defaultdict(list)
        for key in keys:
            scatter = scatter_of([uses.get(key, {}) for uses in (ours, theirs)], speeds)
            for rank in ranks:
                one, other = _of(ours, key, rank), _of(theirs, key, rank)
                if one.count or other.count:
                    changes[rank].append(_change(one, other, speeds[rank], scatter, before.usual_changes["kernel"]))
        if changes:
            whole = {rank: _sum(own) for rank, own in changes.items()}
            for rank, own in whole.items():
                beside[rank] += own.beside_ms
            pairs = {rank: [(_of(ours, key, rank), _of(theirs, key, rank)) for key in keys] for rank in whole}
            rows.append(_row(name, module, whole, pairs))
    rows.sort(key=lambda row: (not row.told, -abs(row.change or 0.0)))
    return [*rows, *_beside(beside), *_speed(speeds, sides, before.usual_changes["device_bound"])]


def _of_rank(uses: Uses, rank: int) -> dict[Key, Use]:
    return {key: by_rank[rank] for key, by_rank in uses.items() if rank in by_rank}


Pair = tuple[Use, Use]
"""A kind of work of one rank in both runs; without calls if it is absent."""


def _of(uses: Uses, key: Key, rank: int) -> Use:
    return uses.get(key, {}).get(rank) or Use()


def _change(one: Use, other: Use, speed: DeviceSpeed, scatter: Scatter, floor: float) -> _Change:
    grown, lengths = other.total_ms - one.total_ms, (one.usual_us, other.usual_us)
    a, b = (own if own is not None else rest for own, rest in zip(lengths, reversed(lengths), strict=True))
    if a is None or b is None:  # mostly overlapping communication in both runs: only the count can be compared
        mean = one.total_ms / one.count if one.count else other.total_ms / other.count
        ms = (other.count - one.count) * mean
        return _Change(ms=ms, own_ms=ms, beside_ms=grown - ms)
    ms, least = (other.count * b - one.count * a) / 1e3, min(one.count, other.count) * min(a, b) / 1e3
    shared = least * math.expm1(scatter.slope * speed.change) if None not in lengths else 0.0
    steps = [max(len(use.single_us), 1) for use in (one, other)]
    return _Change(
        ms=ms,
        own_ms=ms - shared,
        beside_ms=grown - ms,
        floor=floor * least,
        variance=least**2 * scatter.of_change((steps[0], steps[1]), speed),
        freedom=scatter.freedom,
    )


def _sum(changes: Sequence[_Change]) -> _Change:
    """Return the change of several kinds together; degrees of freedom by Welch and Satterthwaite."""
    if len(changes) == 1:
        return changes[0]
    variance = sum(own.variance for own in changes)
    spent = sum(own.variance**2 / own.freedom for own in changes if own.variance)
    return _Change(
        ms=sum(own.ms for own in changes),
        own_ms=sum(own.own_ms for own in changes),
        beside_ms=sum(own.beside_ms for own in changes),
        floor=combined(*(own.floor for own in changes)),
        variance=variance,
        freedom=variance**2 / spent if spent else math.inf,
    )


def _row(name: str, module: str, changes: dict[int, _Change], pairs: dict[int, list[Pair]]) -> DiffRow:
    """Return one row for all kernels of an operator, of the rank on which they changed most."""
    significant = {rank for rank, own in changes.items() if own.least > own.noise}
    most = max(changes, key=lambda rank: (rank in significant, abs(changes[rank].ms)))
    one, other = (sum(pair[side].total_ms for pair in pairs[most]) for side in (0, 1))
    counts = [sum(pair[side].count for own in pairs.values() for pair in own) for side in (0, 1)]
    return DiffRow(
        kind="kernel",
        name=name,
        module=module,
        unit="ms",
        before=one if counts[0] else None,
        after=other if counts[1] else None,
        change=changes[most].ms,
        noise=changes[most].noise,
        chance=simes([own.chance for own in changes.values()]),
        told=most in significant,
        status="changed" if all(counts) else "new" if counts[1] else "gone",
        ranks=[rank for rank in sorted(significant) if abs(changes[rank].ms) >= abs(changes[most].ms) / 2],
        detail=_detail(pairs[most]),
    )


def _name(key: Key) -> str:
    operator, shapes, _, kernel = key
    return f"{operator} {shapes}".strip() if operator else kernel or "unnamed kernel"


def _detail(pairs: list[Pair]) -> str:
    """Return counts, the duration of a call if there is one kind, and kernels if the operator got others."""
    counts = [sum(pair[side].count for pair in pairs) for side in (0, 1)]
    words = [f"{counts[0]:g} -> {counts[1]:g} a step" if counts[0] != counts[1] else f"{counts[0]:g} a step"]
    if len(pairs) == 1:
        one, other = (use.usual_us for use in pairs[0])
        if one is not None and other is not None:
            words.append(f"{one:,.1f} -> {other:,.1f} us each")
    kernels = [{name for pair in pairs for name in pair[side].kernels} - {""} for side in (0, 1)]
    if all(kernels) and kernels[0] != kernels[1]:
        gone, new = sorted(kernels[0] - kernels[1]), sorted(kernels[1] - kernels[0])
        words.append(f"kernel {', '.join(gone[:2]) or 'none'} -> {', '.join(new[:2]) or 'none'}")
    return "; ".join(words)


def _beside(beside: dict[int, float]) -> Iterable[DiffRow]:
    if not beside:
        return
    most = max(beside, key=lambda rank: abs(beside[rank]))
    yield DiffRow(
        kind="beside",
        name="compute beside communication",
        unit="ms",
        before=None,
        after=None,
        change=beside[most],
        ranks=[most],
        detail="the same kernels take longer beside a collective, also one that waits: not told as slower",
    )


def _speed(
    speeds: dict[int, DeviceSpeed], sides: Sequence[dict[int, dict[Key, Use]]], floor: float
) -> Iterable[DiffRow]:
    """Return the common change of all kernels of a rank, for the rank with the largest."""
    between = {rank: speed.change for rank, speed in speeds.items()}
    if not any(between.values()):
        return
    most = max(between, key=lambda rank: abs(between[rank]))
    alone = [sum(use.total_ms for use in side[most].values() if use.usual_us is not None) for side in sides]
    change, noise = alone[0] * math.expm1(between[most]), floor * alone[0]
    yield DiffRow(
        kind="time",
        name=PACE,
        unit="ms",
        before=alone[0],
        after=alone[0] + change,
        change=change,
        noise=noise,
        chance=simes([between_chance(abs(math.expm1(speed)), floor) for speed in between.values()]),
        told=abs(change) > noise,
        ranks=[most],
        detail=f"{100 * math.expm1(between[most]):+.1f} %: the pace of the device or the CPUs rather than a kernel",
    )
