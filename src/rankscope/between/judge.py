"""The verdict from the step logs of all ranks: who makes which steps slow, and by how much. Arrays in, a record out.

There are three tests, each for its own pattern: steps that recur, stretches of steps, and irregular steps that are too
often the same rank's. Steps that one test has explained are removed before the next. Occasions (evaluations,
checkpoints) are recognised by their marks, and are no rank's lateness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from rankscope.between.lateness import Lateness, lateness
from rankscope.between.recurring import LARGEST, Recurrence, binomial_tail, least_seen, recurring
from rankscope.between.step_logs import StepTimes
from rankscope.between.stretches import Stretch, is_growing, joined, stretches, struck_on_others
from rankscope.between.table import FIRST_STEPS, StepTable, side_by_side
from rankscope.between.wording import conclude, describe, slower_for_a_while
from rankscope.causes.wording import amount
from rankscope.records.running.between import BetweenVerdict, PatternKind, SlowPattern
from rankscope.statistics.medians import median_of_others
from rankscope.statistics.thresholds import LEAST_COST, MATTERS

__all__ = ["LEAST_STEPS", "SURE", "judge", "judge_logs"]

LEAST_STEPS = 100
"""Least number of compared steps for a verdict."""
SURE = 1e-3
"""Probability, over all ranks and patterns, that a rank is named in a healthy run."""
WORTH_TELLING = 0.001
"""Share of the step time below which a mean cost is not reported, however regular the pattern is."""
STRUCK = 0.2
"""Share of a usual step by which an irregular step must be late."""
TOGETHER = 3
"""Struck steps that are at most this number of steps apart are one event."""
AT_BOTH_ENDS = 0.05
"""Largest share of the steps that may be missing at either end of a stretch that is called "always"."""
ALIKE = 0.25
"""Largest share of extra time in other places than by proportion, of a rank that is slower at all its work."""
BLOCK = 25
"""Number of steps of a block. The scatter of block means gives the error of a cost, in spite of correlated steps."""

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def judge_logs(
    logs: Mapping[int, StepTimes],
    first: int = FIRST_STEPS,
    since: int = 0,
    *,
    on_host: bool = True,
    devices: bool = False,
    shared: bool = False,
) -> BetweenVerdict:
    """Judge all steps; and if no rank is named, look at them in another way in which a late rank may show.

    On CPUs these are the steps whose collectives were read from torch's flight recorder, which show who is late inside
    of the backward. On devices these are the hosts that launch the work; they are all that is known without times of
    the devices, or if ranks share one, since the times of each have the work of the other in them. See
    :func:`side_by_side` and :func:`judge`.

    Args:
        logs: logs by rank.
        first: number of steps to leave out at the beginning.
        since: number of the first step of these logs.
        on_host: see :func:`judge`.
        devices: whether the job trains on accelerators.
        shared: whether several ranks train on one of them.
    """
    timed = not devices or (not shared and all(log.has_device_times for log in logs.values()))
    found = judge(side_by_side(logs, first, since, launches=not timed), on_host=on_host)
    if found.kind == "insufficient_data" or not timed or (found.ranks and not devices):
        return found
    table = side_by_side(logs, first, since, calls=not devices, launches=devices)
    if table is None or table.compared.sum() < LEAST_STEPS:
        return found
    within = judge(table, on_host=on_host)
    if not within.ranks or _accused_ms(found) > _accused_ms(within):
        return found
    which = "their hosts launch the work of their devices" if devices else "the flight recorder has their collectives"
    within.notes.append(f"{within.steps:,} steps were compared as far as {which}")
    return within


def _accused_ms(verdict: BetweenVerdict) -> float:
    """Return what the patterns of accused ranks cost."""
    return sum(p.cost_ms for p in verdict.patterns if p.accuses)


def judge(table: StepTable | None, *, on_host: bool = True) -> BetweenVerdict:
    """Return the verdict.

    Args:
        table: table of all ranks; None where nothing can be compared.
        on_host: whether the work itself is done on the host, so that a step that is long on all ranks alike is slow. If
            the work is on a device, the host waits for it in some steps, which are then long without any slow step of
            the job.
    """
    compared = int(table.compared.sum()) if table is not None else 0
    if table is None or compared < LEAST_STEPS:
        verdict = BetweenVerdict(kind="insufficient_data", steps=compared, notes=[] if table is None else table.notes)
        return conclude(verdict)
    return conclude(_Judgement(table, on_host).verdict())


class _Judgement:
    """The tests on one table."""

    def __init__(self, table: StepTable, on_host: bool) -> None:
        self.table = table
        self.on_host = on_host
        self.late: Lateness = lateness(table)
        self.usual = float(np.median(table.step[:, table.compared]))
        self.charge = self.late.charge.copy()
        self.numbers = np.flatnonzero(table.compared)
        self.patterns: list[SlowPattern] = []
        self.notes = list(table.notes)

    def verdict(self) -> BetweenVerdict:
        """Run all tests, then conclude."""
        self._recurrences()
        self._stretches()
        self._irregular()
        self._stalls()
        if self.on_host:
            self._alike()
        self._occasions()
        self.patterns.sort(key=lambda pattern: -pattern.cost_ms)
        accused = [p for p in self.patterns if p.accuses]
        held = float(self.table.held[:, self.table.compared].mean(axis=1).max())
        verdict = BetweenVerdict(
            kind="nobody", steps=len(self.numbers), step_ms=self.usual, patterns=self.patterns, held_ms=held,
            notes=self.notes,
        )  # fmt: skip
        if accused:
            verdict.kind = "turns" if accused[0].kind == "turns" else "named"
            verdict.ranks = list(dict.fromkeys(rank for p in accused for rank in p.ranks))
        elif any(not p.ranks and p.kind == "every" for p in self.patterns):
            verdict.kind = "alike"
        elif held >= LEAST_COST * self.usual:
            verdict.kind = "contended"
        least = least_seen(self.late.charge[:, self.numbers], self.usual, SURE, WORTH_TELLING)
        if least is not None and not accused:
            verdict.notes.append(
                f"a rank that is {amount(least[0])} late once in {least[1]} steps, or more often, would have been named"
            )
        return verdict

    # ------------------------------------------------------------ the tests

    def _recurrences(self) -> None:
        found: dict[int, Recurrence] = {}
        for row in range(len(self.table.ranks)):
            seen = recurring(self.charge[row], self.table.compared, self.usual, self.table.first)
            if seen is not None and seen.log_p + math.log(len(self.charge)) < math.log(SURE):
                found[row] = seen
        found = {row: seen for row, seen in found.items() if self._is_its_own(row, seen)}
        masks = {row: self._at(seen) for row, seen in found.items()}
        periods = {seen.period for seen in found.values()}
        if len(found) > 1 and len(periods) == 1 and len({seen.place for seen in found.values()}) == len(found):
            self._add("turns", masks, next(iter(found.values())))
        else:
            for row, seen in found.items():
                self._add("every", {row: masks[row]}, seen)

    def _is_its_own(self, row: int, seen: Recurrence) -> bool:
        """Whether a rank's steps are more than its share of steps that recur anyway, on whichever rank.

        If something strikes one rank or another in every 25th step, one rank is struck in every 75th by chance.
        """
        any_rank = recurring(self.charge.max(axis=0), self.table.compared, self.usual, self.table.first)
        if any_rank is None or seen.period == any_rank.period:
            return True
        if seen.period % any_rank.period or seen.place % any_rank.period != any_rank.place:
            return True
        struck = self.charge > seen.share * self.usual
        grid = self._at(any_rank) & struck.any(axis=0)
        inside = grid & self._at(seen)
        outside = grid & ~inside
        usually = float(struck[row, outside].mean()) if outside.any() else 0.0
        share = min(max(usually, 1.0 / max(int(grid.sum()), 2)), 0.99)
        multiples = LARGEST // any_rank.period
        tests = len(self.charge) * multiples * (multiples + 1) / 2
        log_p = binomial_tail(int(struck[row, inside].sum()), max(int(inside.sum()), 1), share) + math.log(tests)
        return log_p < math.log(SURE)

    def _stretches(self) -> None:
        compared = self.charge[:, self.numbers]
        beside = list(struck_on_others(compared, self.usual))
        for row, others in enumerate(beside):
            seen = stretches(compared[row], self.usual, others)
            for found in joined(s for s in seen if s.log_p + math.log(len(compared)) < math.log(SURE)):
                self._stretch(row, found)

    def _stretch(self, row: int, found: Stretch) -> None:
        steps = len(self.numbers)
        near = max(AT_BOTH_ENDS * steps, BLOCK)
        to_the_end = found.end >= steps - near
        kind: PatternKind = "spell"
        if to_the_end:
            kind = "always" if found.begin <= near else "since"
            before = max(2 * found.begin - found.end, 0)
            if is_growing(self.late.waited_for[row, self.numbers[before : found.end]]):
                kind = "drifting"
        mask = np.zeros_like(self.table.compared)
        mask[self.numbers[found.begin : found.end]] = True
        self._add(kind, {row: mask}, found)

    def _irregular(self) -> None:
        struck = self.charge > STRUCK * self.usual
        events: list[tuple[int, int]] = []
        for at in np.flatnonzero(struck.any(axis=0)).tolist():
            if events and at - events[-1][1] <= TOGETHER:
                events[-1] = events[-1][0], at
            else:
                events.append((at, at))
        owners = [int(self.charge[:, begin : end + 1].sum(axis=1).argmax()) for begin, end in events]
        for row in range(len(self.charge)):
            count = owners.count(row)
            if count < 2 or len(self.charge) < 2:
                continue
            log_p = binomial_tail(count, len(events), 1 / len(self.charge))
            if log_p + math.log(len(self.charge)) >= math.log(SURE):
                continue
            cost = float(np.minimum(self.late.margin[row], self.charge[row])[struck[row]].sum()) / len(self.numbers)
            if cost >= MATTERS * self.usual:
                mask = struck[row] & self.table.compared
                self._add("bursts", {row: mask}, Stretch(0, 0, int(mask.sum()), log_p))

    def _stalls(self) -> None:
        """Tell single steps that cost much of the run by themselves. They are measured, and no pattern of a rank."""
        costs = np.minimum(self.late.margin, self.charge)
        for row in range(len(costs)):
            mask = (costs[row] > MATTERS * self.usual * len(self.numbers)) & self.table.compared
            if mask.any():
                self._add("stall", {row: mask}, Stretch(0, 0, int(mask.sum()), 0.0))
                self.patterns[-1].p_value = None  # nothing was tested

    def _alike(self) -> None:
        """Find recurring steps that are long on all ranks, without a late rank in them."""
        # A step that is long because all others wait for one rank is not long on all ranks alike.
        shortest = self.table.step.min(axis=0)
        excess = np.maximum(shortest - self.usual - self.late.waited_for.max(axis=0), 0.0)
        excess[(self.late.charge > self.charge).any(axis=0)] = 0.0
        seen = recurring(excess, self.table.compared, self.usual, self.table.first)
        if seen is None or seen.log_p >= math.log(SURE):
            return
        mask = self._at(seen)
        others = self.table.compared & ~mask
        size = float(np.median(excess[mask]) - np.median(excess[others]))
        pattern = self._pattern("every", [], mask, seen, size)
        pattern.cost_ms = size * float(mask.sum()) / len(self.numbers)
        self._keep(pattern)

    def _occasions(self) -> None:
        kinds: tuple[tuple[PatternKind, Mask], ...] = (
            ("checkpoint", self.table.checkpoint), ("evaluation", self.table.evaluation & ~self.table.checkpoint),
        )  # fmt: skip
        for kind, marks in kinds:
            mask = marks.any(axis=0)
            if not mask.any():
                continue
            excess = np.median(self.table.step, axis=0) - self.usual
            at = np.flatnonzero(mask)
            ranks = [rank for rank, own in zip(self.table.ranks, marks, strict=True) if own.any()]
            pattern = SlowPattern(kind=kind, ranks=ranks if len(ranks) < len(self.table.ranks) else [])
            pattern.first, pattern.last = self.table.first + int(at[0]), self.table.first + int(at[-1])
            pattern.seen = pattern.of = len(at)
            apart = np.diff(at)
            if len(apart) and (apart == apart[0]).all() and apart[0] > 1:
                pattern.period = int(apart[0])
            pattern.size_ms = float(np.median(excess[mask]))
            pattern.cost_ms = float(np.maximum(excess[mask], 0.0).sum()) / (len(self.numbers) + len(at))
            self._keep(pattern)

    # ------------------------------------------------------------ what was found

    def _at(self, seen: Recurrence) -> Mask:
        numbers = np.arange(len(self.table.compared)) + self.table.first
        return np.asarray(self.table.compared & (numbers % seen.period == seen.place))

    def _add(self, kind: PatternKind, masks: dict[int, Mask], seen: Recurrence | Stretch) -> None:
        """Add a pattern of ranks (by row) and their steps, and remove these steps from what is tested next."""
        whole = np.logical_or.reduce(list(masks.values()))
        outside = self.table.compared & ~whole
        gain, sizes = np.zeros(len(whole)), []
        for row, mask in masks.items():
            if outside.sum() >= BLOCK:  # lateness in the rank's other steps is no part of the pattern
                waited_for, margin = self.late.waited_for[row], self.late.margin[row]
                sizes.append(float(np.median(waited_for[mask]) - np.median(waited_for[outside])))
                gain += np.where(mask, margin - margin[outside].mean(), 0.0)
            else:
                sizes.append(float(np.median(self.late.charge[row, mask])))
                gain += np.where(mask, np.minimum(self.late.margin[row], self.late.charge[row]), 0.0)
        ranks = [self.table.ranks[row] for row in masks]
        pattern = self._pattern(kind, ranks, whole, seen, float(np.median(sizes)))
        pattern.cost_ms, pattern.error_ms = _mean_and_error(gain[self.numbers], max(BLOCK, pattern.period or 0))
        row, mask = next(iter(masks.items()))
        pattern.place, pattern.cpu = self._place(row, mask, pattern.size_ms)
        for row, mask in masks.items():
            self.charge[row, mask] = 0.0
        if kind in ("since", "drifting", "spell") and pattern.cpu and self._is_slower_at_all_work(row, mask):
            self.notes.append(slower_for_a_while(pattern))
        else:
            self._keep(pattern)

    def _pattern(
        self, kind: PatternKind, ranks: list[int], mask: Mask, seen: Recurrence | Stretch, size: float
    ) -> SlowPattern:
        at = np.flatnonzero(mask) + self.table.first
        pattern = SlowPattern(kind=kind, ranks=ranks, size_ms=size, first=int(at[0]), last=int(at[-1]), seen=seen.seen)
        pattern.p_value = min(math.exp(min(seen.log_p, 0.0)) * len(self.table.ranks), 1.0)
        if isinstance(seen, Recurrence):
            pattern.period, pattern.of = seen.period, seen.of
        else:
            pattern.of = len(at)
        if kind in ("always", "since", "drifting"):
            pattern.last = None
        return pattern

    def _keep(self, pattern: SlowPattern) -> None:
        if pattern.cost_ms >= WORTH_TELLING * self.usual:
            pattern.sentence = describe(pattern, self.usual)
            self.patterns.append(pattern)

    def _place(self, row: int, mask: Mask, size: float) -> tuple[str, bool]:
        """Return where a rank spends its lateness, if most of it is in one place, and whether it is CPU time."""
        found = {name: self._more(values, row, mask) for name, values in self.table.places.items()}
        place = max(found, key=lambda name: found[name])
        return place if found[place] >= size / 2 else "", self._more(self.table.cpu, row, mask) >= size / 2

    def _is_slower_at_all_work(self, row: int, mask: Mask) -> bool:
        """Whether a rank's lateness is spread over the places in which it works as its time there usually is.

        That is what a slower core does, or another machine's work on the same physical core: of jobs on virtual
        machines, all work of one rank took 25 to 30 % longer for 50 to 130 steps, with 5 % of it in other places than
        by proportion; of a rank that does more, the extra time is in one place.
        """
        worked = [values for name, values in self.table.places.items() if name not in ("input", "gc")]
        more = np.array([self._more(values, row, mask) for values in worked])
        usual = np.array([np.median(values[row, self.table.compared]) for values in worked])
        if more.sum() <= 0 or usual.sum() <= 0:
            return False
        elsewhere = np.abs(more - more.sum() * usual / usual.sum()).sum() / 2
        return bool(elsewhere < ALIKE * more.sum())

    def _more(self, values: F64, row: int, mask: Mask) -> float:
        """Return by how much a value of a rank exceeds its peers' in some steps, less what it usually does, in ms."""
        outside = self.table.compared & ~mask
        extra = (values - median_of_others(values.T).T)[row]
        usually = float(np.median(extra[outside])) if outside.sum() >= BLOCK else 0.0
        return float(np.median(extra[mask])) - usually


def _mean_and_error(values: F64, block: int) -> tuple[float, float]:
    """Mean per step, and its standard error from the scatter of blocks of steps."""
    blocks = len(values) // block
    mean = float(values.mean())
    if blocks < 2:
        return mean, abs(mean)
    means = values[: blocks * block].reshape(blocks, block).mean(axis=1)
    return mean, float(means.std(ddof=1)) / math.sqrt(blocks)
