"""Kinds of compute of each rank, and which of one run are which of another."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean

from rankscope.records.rank_window import RankWindow

__all__ = ["Key", "Use", "Uses", "paired"]

Key = tuple[str, str, str, str]
"""Operator, shapes, module, kernel; parts that two runs do not share are empty."""

MOSTLY = 0.9
"""Share of a kind's calls that ran beside no communication, from which on its length is compared. Where more ran beside
it, the others are other calls in each run: measured between runs of one program, lengths scatter by 1.0 to 1.3 % above
this share, and by 3 to 9 % below it (benchmarks/README.md)."""

_CUTS: tuple[Callable[[Key], Key], ...] = (
    lambda key: (key[0], key[1], key[2], ""),
    lambda key: (key[0], "", key[2], ""),
    lambda key: (key[0], key[1], "", ""),
    lambda key: (key[0], "", "", ""),
)
"""What pairs kinds that only one of the runs has, in turn."""


@dataclass(slots=True)
class Use:
    """One kind of work of one rank."""

    count: float = 0.0
    """A step."""
    alone: float = 0.0
    """Of these how many ran beside no communication."""
    total_ms: float = 0.0
    """A step."""
    steps: list[int] = field(default_factory=list)
    """The rank's recorded steps, of all windows one after the other, in which some ran beside no communication."""
    single_us: list[float] = field(default_factory=list)
    """Of each of ``steps`` the median of one; of several kinds their mean, for all steps at once."""
    kernels: set[str] = field(default_factory=set)

    logs: list[float] = field(init=False)
    """Logarithms of ``single_us``; of less than the clock of a trace counts in, that."""
    usual_us: float | None = field(init=False)
    """How long one takes that runs beside no communication, the geometric mean of the steps; None of a kind that mostly
    runs beside it."""

    def __post_init__(self) -> None:
        self.settle()

    def settle(self) -> None:
        """Fill what follows from the rest."""
        self.logs = [math.log(max(us, 1e-3)) for us in self.single_us]
        known = bool(self.logs) and self.alone >= MOSTLY * self.count
        self.usual_us = math.exp(fmean(self.logs)) if known else None

    def add(self, other: Use) -> None:
        """Another kind of the same rank, to be told together."""
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
    """The kinds of both runs, with the same keys for what is the same in both."""
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
            if use is None:  # texts are looked up once a kind, not once a step: a thousand ranks have a million rows
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
