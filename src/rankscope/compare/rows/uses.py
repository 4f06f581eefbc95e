"""Kinds of compute of each rank, and their correspondence between two runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean

from rankscope.records.rank_window import RankWindow

__all__ = ["Key", "Use", "Uses", "paired"]

Key = tuple[str, str, str, str]
"""Operator, shapes, module, kernel; parts that the two runs do not share are empty."""

MOSTLY = 0.9
"""Share of a kind's calls without overlap with communication, from which on its duration is compared. If more calls
overlap, the others are different calls in each run: between runs of one program, durations scatter by 1.0 to 1.3 %
above this share, and by 3 to 9 % below it (benchmarks/README.md)."""

_CUTS: tuple[Callable[[Key], Key], ...] = (
    lambda key: (key[0], key[1], key[2], ""),
    lambda key: (key[0], "", key[2], ""),
    lambda key: (key[0], key[1], "", ""),
    lambda key: (key[0], "", "", ""),
)
"""Keys by which kinds that only one of the runs has are paired, in this order."""


@dataclass(slots=True)
class Use:
    """One kind of work of one rank."""

    count: float = 0.0
    """Calls per step."""
    alone: float = 0.0
    """Number of these without overlap with communication."""
    total_ms: float = 0.0
    """Time per step."""
    steps: list[int] = field(default_factory=list)
    """The rank's recorded steps, of all windows one after the other, in which some did not overlap communication."""
    single_us: list[float] = field(default_factory=list)
    """For each of ``steps`` the median duration of one call; for several kinds their mean, for all steps at once."""
    kernels: set[str] = field(default_factory=set)

    logs: list[float] = field(init=False)
    """Logarithms of ``single_us``, which is at least the resolution of a trace's clock."""
    usual_us: float | None = field(init=False)
    """Duration of a call without overlap with communication, geometric mean over the steps; None for a kind that mostly
    overlaps it."""

    def __post_init__(self) -> None:
        self.settle()

    def settle(self) -> None:
        """Compute the fields that depend on the others."""
        self.logs = [math.log(max(us, 1e-3)) for us in self.single_us]
        known = bool(self.logs) and self.alone >= MOSTLY * self.count
        self.usual_us = math.exp(fmean(self.logs)) if known else None

    def add(self, other: Use) -> None:
        """Add another kind of the same rank, to be reported as one."""
        lengths = [(use.count, use.usual_us) for use in (self, other) if use.usual_us is not None]
        weight = sum(count for count, _ in lengths)
        self.single_us = [sum(count * us for count, us in lengths) / weight] if weight else []
        self.steps = []
        self.count += other.count
        self.alone += other.alone
        self.total_ms += other.total_ms
        self.kernels |= other.kernels
        self.settle()


Uses = dict[Key, dict[int, Use]]
"""Kind -> rank -> its use."""


def paired(before: Iterable[RankWindow], after: Iterable[RankWindow]) -> tuple[Uses, Uses]:
    """Return the kinds of both runs, with equal keys for corresponding kinds."""
    sides = [list(before), list(after)]
    modules = all(own.work.module for side in sides for own in side if own.work.operator)
    ours, theirs = (_uses(side, modules=modules) for side in sides)
    for cut in _CUTS:
        lonely = set(ours) ^ set(theirs)
        again = {key: cut(key) for key in lonely if key[0]}
        both = {cut(k) for k in set(ours) & lonely if k[0]} & {cut(k) for k in set(theirs) & lonely if k[0]}
        ours, theirs = (_joined(uses, {k: c for k, c in again.items() if c in both}) for uses in (ours, theirs))
    return ours, theirs


def _uses(ranks: Iterable[RankWindow], *, modules: bool) -> Uses:
    found: Uses = {}
    steps: dict[int, int] = defaultdict(int)
    for own in ranks:
        first = steps[own.rank]
        steps[own.rank] += len(own.steps.number)
        work, known = own.work, dict[tuple[int, int, int, int], Use]()
        within = work.module if modules else [-1] * len(work.operator)
        kinds = zip(work.operator, work.shapes, within, work.name, strict=True)
        numbers = zip(work.step, work.count, work.total_ns, work.alone, work.alone_median_ns, strict=True)
        for kind, (step, count, total, alone, single) in zip(kinds, numbers, strict=True):
            use = known.get(kind)
            if use is None:  # texts are looked up per kind, not per step: a thousand ranks have a million rows
                operator, shapes, module, kernel = map(own.text, kind)
                key = (operator, shapes, module, kernel)
                use = known[kind] = found.setdefault(key, {}).setdefault(own.rank, Use())
                use.kernels.add(kernel)
            use.count += count
            use.alone += alone
            use.total_ms += total / 1e6
            if alone:
                use.steps.append(first + step)
                use.single_us.append(single / 1e3)
    for by_rank in found.values():
        for rank, use in by_rank.items():
            for name in ("count", "alone", "total_ms"):
                setattr(use, name, getattr(use, name) / max(steps[rank], 1))
            use.settle()
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
