"""Compute by what it is: which kernels are new or gone, run more often, or take longer.

Kinds are paired by operator, its input shapes, module and the kernel's name; what is left without the kernel (the
library chose another one), then without shapes, without the module (it is called otherwise), and by operator alone.
Modules count where both runs recorded them. Lengths are compared only of kernels that ran beside no communication: what
runs beside it in one of the runs is kept apart, as a collective that only waits makes it longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from rankscope.compare.sides.noise import BETWEEN, combined, of_difference
from rankscope.compare.sides.side import Side
from rankscope.records.diff import DiffRow
from rankscope.records.rank_window import RankWindow

__all__ = ["work_rows"]

Key = tuple[str, str, str, str]
"""Operator, shapes, module, kernel; parts that two runs do not share are empty."""

_CUTS: tuple[Callable[[Key], Key], ...] = (
    lambda key: (key[0], key[1], key[2], ""),
    lambda key: (key[0], "", key[2], ""),
    lambda key: (key[0], key[1], "", ""),
    lambda key: (key[0], "", "", ""),
)
"""What pairs kinds that only one of the runs has, in turn."""


@dataclass(slots=True)
class _Use:
    """One kind of work of one rank: a value for each step of all windows in which it ran."""

    count: float = 0.0
    """A step."""
    total_ms: float = 0.0
    """A step."""
    single_us: list[float] = field(default_factory=list)
    """Of each step with a kernel that ran beside no communication: the median of these, or their mean of several
    kinds."""
    kernels: set[str] = field(default_factory=set)

    @property
    def usual_us(self) -> float | None:
        return median(self.single_us) if self.single_us else None

    def add(self, other: _Use) -> None:
        """Another kind of the same rank, to be told together."""
        lengths = [(use.count, use.usual_us) for use in (self, other) if use.usual_us is not None]
        weight = sum(count for count, _ in lengths)
        self.single_us = [sum(count * us for count, us in lengths) / weight] if weight else []
        self.count += other.count
        self.total_ms += other.total_ms
        self.kernels |= other.kernels


Uses = dict[Key, dict[int, _Use]]


def work_rows(before: Side, after: Side) -> list[DiffRow]:
    """A row for each operator and shapes, and one for what ran beside communication."""
    modules = _has_modules(before.ranks) and _has_modules(after.ranks)
    ours, theirs = (_uses(side.ranks, modules=modules) for side in (before, after))
    ranks = sorted({own.rank for own in before.ranks} & {own.rank for own in after.ranks})
    for cut in _CUTS:
        lonely = set(ours) ^ set(theirs)
        again = {key: cut(key) for key in lonely if key[0]}
        both = {cut(k) for k in set(ours) & lonely if k[0]} & {cut(k) for k in set(theirs) & lonely if k[0]}
        ours, theirs = (_joined(uses, {k: c for k, c in again.items() if c in both}) for uses in (ours, theirs))
    named: dict[tuple[str, str], list[Key]] = defaultdict(list)
    for key in sorted(set(ours) | set(theirs)):
        named[_name(key), key[2]].append(key)
    rows, beside = [], defaultdict[int, float](float)
    for name, keys in named.items():
        pairs = {rank: [(_of(ours, key, rank), _of(theirs, key, rank)) for key in keys] for rank in ranks}
        row = _row(name, pairs, beside)
        if row is not None:
            rows.append(row)
    rows.sort(key=lambda row: (not row.told, -abs(row.change or 0.0)))
    return [*rows, *_beside(beside)]


def _has_modules(ranks: Iterable[RankWindow]) -> bool:
    return all(own.work.module for own in ranks if own.work.operator)


def _uses(ranks: Iterable[RankWindow], *, modules: bool) -> Uses:
    found: Uses = {}
    steps: dict[int, int] = defaultdict(int)
    for own in ranks:
        steps[own.rank] += len(own.steps.number)
        work, known = own.work, dict[tuple[int, int, int, int], _Use]()
        within = work.module if modules else [-1] * len(work.operator)
        kinds = zip(work.operator, work.shapes, within, work.name, strict=True)
        numbers = zip(work.count, work.total_ns, work.alone, work.alone_median_ns, strict=True)
        for kind, (count, total, alone, single) in zip(kinds, numbers, strict=True):
            use = known.get(kind)
            if use is None:  # texts are looked up once a kind, not once a step: a thousand ranks have a million rows
                operator, shapes, module, kernel = map(own.text, kind)
                key = (operator, shapes, module, kernel)
                use = known[kind] = found.setdefault(key, {}).setdefault(own.rank, _Use())
                use.kernels.add(kernel)
            use.count += count
            use.total_ms += total / 1e6
            if alone:
                use.single_us.append(single / 1e3)
    for by_rank in found.values():
        for rank, use in by_rank.items():
            use.count /= max(steps[rank], 1)
            use.total_ms /= max(steps[rank], 1)
    return found


def _joined(uses: Uses, names: dict[Key, Key]) -> Uses:
    found: Uses = {}
    for key, by_rank in uses.items():
        into = found.setdefault(names.get(key, key), {})
        for rank, use in by_rank.items():
            if rank in into:
                into[rank].add(use)
            else:
                into[rank] = use
    return found


Pair = tuple[_Use, _Use]
"""A kind of work of one rank in both runs; without calls where it is not there."""


def _of(uses: Uses, key: Key, rank: int) -> _Use:
    return uses.get(key, {}).get(rank) or _Use()


def _row(name: tuple[str, str], pairs: dict[int, list[Pair]], beside: dict[int, float]) -> DiffRow | None:
    """One row of all kernels of an operator, of the rank on which they changed most."""
    changes: dict[int, tuple[float, float]] = {}
    for rank, own in pairs.items():
        found = [_change(one, other) for one, other in own if one.count or other.count]
        if found:
            changes[rank] = sum(ms for ms, _, _ in found), combined(*(noise for _, noise, _ in found))
            beside[rank] += sum(rest for _, _, rest in found)
    if not changes:
        return None
    told = {rank for rank, (ms, noise) in changes.items() if abs(ms) > noise}
    most = max(changes, key=lambda rank: (rank in told, abs(changes[rank][0])))
    one, other = (sum(pair[side].total_ms for pair in pairs[most]) for side in (0, 1))
    counts = [sum(pair[side].count for own in pairs.values() for pair in own) for side in (0, 1)]
    return DiffRow(
        kind="kernel",
        name=name[0],
        module=name[1],
        unit="ms",
        before=one if counts[0] else None,
        after=other if counts[1] else None,
        change=changes[most][0],
        noise=changes[most][1],
        told=most in told,
        status="changed" if all(counts) else "new" if counts[1] else "gone",
        ranks=[rank for rank in sorted(told) if abs(changes[rank][0]) >= abs(changes[most][0]) / 2],
        detail=_detail(pairs[most]),
    )


def _change(one: _Use, other: _Use) -> tuple[float, float, float]:
    """What the work takes more, the noise of that, and what only running beside communication adds: ms a step."""
    grown, lengths = other.total_ms - one.total_ms, (one.usual_us, other.usual_us)
    a, b = (own if own is not None else rest for own, rest in zip(lengths, reversed(lengths), strict=True))
    if a is None or b is None:  # never alone in any of the runs: nothing but the count can be compared
        mean = one.total_ms / one.count if one.count else other.total_ms / other.count
        ms = (other.count - one.count) * mean
        return ms, 0.0, grown - ms
    ms = (other.count * b - one.count * a) / 1e3
    spread = of_difference(one.single_us, other.single_us) or 0.0
    noise = min(one.count, other.count) * max(BETWEEN["kernel"] * min(a, b), spread) / 1e3
    return ms, noise, grown - ms


def _name(key: Key) -> str:
    operator, shapes, _, kernel = key
    return f"{operator} {shapes}".strip() if operator else kernel or "unnamed kernel"


def _detail(pairs: list[Pair]) -> str:
    """Counts, length of a single one where there is one kind, and kernels where the operator got others."""
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


def _beside(beside: dict[int, float]) -> list[DiffRow]:
    if not beside:
        return []
    most = max(beside, key=lambda rank: abs(beside[rank]))
    return [
        DiffRow(
            kind="beside",
            name="compute beside communication",
            unit="ms",
            before=None,
            after=None,
            change=beside[most],
            ranks=[most],
            detail="the same kernels take longer beside a collective, also one that waits: not told as slower",
        )
    ]
