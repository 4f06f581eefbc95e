"""Changes that must not affect a verdict do not, in any combination.

A healthy job and one with a straggler are simulated (see ``worlds``), then their traces are damaged as real ones are:
records lost, windows shifted, groups named otherwise, files in another order, times in whole microseconds, clocks
apart, sequence numbers absent. The report keeps verdict and numbers, or says what it does not know; it never names
another rank.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.analysis.pipeline import analyze
from rankscope.records.report import ClusterReport
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.load import LoadResult

from .worlds import MS, Fault, Item, Mesh, by_hand, simulate

pytestmark = pytest.mark.data

MESH = Mesh(tp=2, dp=2)
STRAGGLER = 3
STALL = Item("fetch", host=3 * MS)
STEPS = 5
UNKNOWN = "insufficient_data"
FEW = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
examples = pytest.mark.parametrize("examples", [3, pytest.param(12, marks=pytest.mark.long)])

Traces = list[RankTrace]
Damage = Callable[[Traces], None]


@cache
def _world(late: bool) -> Traces:
    faults = [Fault(STRAGGLER, STALL)] if late else []
    traces = simulate(by_hand(3), MESH, steps=STEPS, noise=0.01, faults=faults, seed=5)
    for trace in traces:
        calls = trace.collectives
        calls.seq = np.zeros(len(calls), np.int64)
        for group in range(len(trace.groups)):
            mine = calls.group == group
            calls.seq[mine] = np.arange(int(mine.sum()))
    return traces


def world(late: bool) -> Traces:
    """Traces that may be changed."""
    return copy.deepcopy(_world(late))


@cache
def _undamaged(late: bool) -> ClusterReport:
    return report_of(world(late))


def report_of(traces: Traces) -> ClusterReport:
    return analyze(LoadResult(traces=traces, sources=[]), hta=False)


def keep(trace: RankTrace, kept: np.ndarray) -> None:
    """Only these events, and what refers to them."""
    events, calls = trace.events, trace.collectives
    number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    for column in fields(events):
        setattr(events, column.name, getattr(events, column.name)[kept])
    events.launch = number[events.launch].astype(np.int32)
    of_calls = kept[calls.event]
    for column in fields(calls):
        values = getattr(calls, column.name)
        chosen = (
            [v for v, k in zip(values, of_calls, strict=True) if k] if isinstance(values, list) else values[of_calls]
        )
        setattr(calls, column.name, chosen)
    calls.event = number[calls.event].astype(np.int32)


def lose(share: float, seed: int, ranks: tuple[int, ...] = (0, 1, 2, 3)) -> Damage:
    """Records of the device, as CUPTI loses them: one here, one there."""

    def damage(traces: Traces) -> None:
        rng = np.random.default_rng(seed)
        for trace in traces:
            if trace.rank in ranks:
                keep(trace, (trace.events.stream < 0) | (rng.random(len(trace.events)) >= share))

    return damage


def shift_window(rank: int, later: int) -> Damage:
    """One rank recorded ``later`` steps later than the others, or earlier."""

    def damage(traces: Traces) -> None:
        for trace in traces:
            dropped = range(later) if trace.rank == rank else range(STEPS - later, STEPS)
            if later < 0:
                dropped = range(STEPS + later, STEPS) if trace.rank == rank else range(-later)
            keep(trace, ~np.isin(trace.events.step, list(dropped)))
            kept = np.setdiff1d(np.arange(STEPS), list(dropped))
            number = np.full(STEPS + 1, -1, np.int32)
            number[kept] = np.arange(len(kept))
            trace.events.step = number[trace.events.step]
            steps = trace.steps
            steps.number, steps.start, steps.duration = steps.number[kept], steps.start[kept], steps.duration[kept]

    return damage


def rename_groups(seed: int) -> Damage:
    """Names are a rank's own; descriptions may be missing."""

    def damage(traces: Traces) -> None:
        rng = np.random.default_rng(seed)
        for trace in traces:
            names = rng.permutation(100)[: len(trace.groups)]
            trace.groups[:] = [
                replace(group, name=str(name), description="undefined")
                for group, name in zip(trace.groups, names, strict=True)
            ]

    return damage


def permute(seed: int) -> Damage:
    def damage(traces: Traces) -> None:
        order = np.random.default_rng(seed).permutation(len(traces))
        traces[:] = [traces[i] for i in order]

    return damage


def whole_us(traces: Traces) -> None:
    for trace in traces:
        for row in (trace.events, trace.steps):
            end = np.round((row.start + row.duration) / 1000).astype(np.int64) * 1000
            row.start = np.round(row.start / 1000).astype(np.int64) * 1000
            row.duration = end - row.start


def shift_clocks(seed: int, ppm: float) -> Damage:
    """Up to 50 ms apart, drifting."""

    def damage(traces: Traces) -> None:
        rng = np.random.default_rng(seed)
        for trace in traces:
            offset, drift = int(rng.integers(-50 * MS, 50 * MS)), rng.uniform(-ppm, ppm) * 1e-6
            for row in (trace.events, trace.steps):
                end = row.start + row.duration
                end = end + offset + np.round(end * drift).astype(np.int64)
                row.start = row.start + offset + np.round(row.start * drift).astype(np.int64)
                row.duration = end - row.start

    return damage


def drop_seq(ranks: tuple[int, ...]) -> Damage:
    def damage(traces: Traces) -> None:
        for trace in traces:
            if trace.rank in ranks:
                trace.collectives.seq[:] = -1

    return damage


SEEDS = st.integers(0, 10_000)
RANKS = st.integers(0, 3)
HARMLESS: dict[str, st.SearchStrategy[Damage]] = {
    "groups named otherwise": SEEDS.map(rename_groups),
    "files in another order": SEEDS.map(permute),
    "whole microseconds": st.just(whole_us),
    "clocks apart": st.builds(shift_clocks, SEEDS, st.sampled_from([0.0, 20.0])),
    "no sequence numbers": st.just(drop_seq((0, 1, 2, 3))),
    "sequence numbers of some": st.sets(RANKS, min_size=1, max_size=3).map(lambda ranks: drop_seq(tuple(ranks))),
    "windows shifted": st.builds(shift_window, RANKS, st.sampled_from([-1, 1])),
}
"""What leaves all that a verdict needs."""


def check_innocent(found: ClusterReport, late: bool) -> None:
    """Nobody but the straggler is named, in the verdict or as a finding's straggler."""
    assert found.errors == []
    assert set(found.verdict.ranks) <= ({STRAGGLER} if late else set())


def check_same(found: ClusterReport, late: bool, *, cost: float = 0.15) -> None:
    truth = _undamaged(late)
    assert (found.verdict.kind, found.verdict.ranks) == (truth.verdict.kind, truth.verdict.ranks)
    assert found.verdict.cause == truth.verdict.cause
    assert found.verdict.step_ms == pytest.approx(truth.verdict.step_ms, rel=0.05)
    if late:
        assert found.verdict.cost_ms_per_step == pytest.approx(truth.verdict.cost_ms_per_step, rel=cost)
    for row, true in zip(found.ranks, truth.ranks, strict=True):
        assert row.rank == true.rank
        assert row.compute_pct == pytest.approx(true.compute_pct, abs=1.0)
        assert row.exposed_comm_pct == pytest.approx(true.exposed_comm_pct, abs=1.0)


def test_the_undamaged_worlds() -> None:
    assert _undamaged(late=False).verdict.ranks == []
    found = _undamaged(late=True).verdict
    assert (found.kind, found.ranks, found.cause) == ("straggler", [STRAGGLER], "input_stall")
    assert found.cost_ms_per_step == pytest.approx(3.0, rel=0.15)


@pytest.mark.parametrize("late", [False, True], ids=["healthy", "straggler"])
@pytest.mark.parametrize("kind", HARMLESS)
@examples
def test_verdict_and_numbers_stay(kind: str, late: bool, examples: int) -> None:
    @settings(FEW, max_examples=examples)
    @given(damage=HARMLESS[kind])
    def holds(damage: Damage) -> None:
        traces = world(late)
        damage(traces)
        found = report_of(traces)
        check_innocent(found, late)
        check_same(found, late)

    holds()


@pytest.mark.parametrize("late", [False, True], ids=["healthy", "straggler"])
@pytest.mark.parametrize("later", [-3, -2, 2, 3])
def test_windows_with_few_common_steps_are_reported(later: int, late: bool) -> None:
    """One or two steps are left that all ranks recorded: the verdict stays, or says that it cannot be had."""
    for rank in range(4):
        traces = world(late)
        shift_window(rank, later)(traces)
        found = report_of(traces)
        check_innocent(found, late)
        assert found.verdict.kind in {UNKNOWN, _undamaged(late).verdict.kind}


@pytest.mark.parametrize("late", [False, True], ids=["healthy", "straggler"])
@examples
def test_all_of_it_at_once(late: bool, examples: int) -> None:
    @settings(FEW, max_examples=examples)
    @given(st.lists(st.one_of(*HARMLESS.values()), min_size=2, max_size=4), st.sampled_from([0.0, 0.01, 0.05]), SEEDS)
    def holds(damages: list[Damage], share: float, seed: int) -> None:
        traces = world(late)
        for damage in damages[:1] if share else damages:
            damage(traces)
        lose(share, seed)(traces)
        check_innocent(report_of(traces), late)

    holds()


def test_work_that_moves_to_the_next_segment_is_no_more_work() -> None:
    """A lost call lets segments of two ranks begin one piece of work later: each has more in some, less in others."""
    traces = world(late=False)
    whole_us(traces)
    lose(0.05, 1345)(traces)
    check_innocent(report_of(traces), late=False)


@pytest.mark.parametrize("late", [False, True], ids=["healthy", "straggler"])
@pytest.mark.parametrize("share", [pytest.param(0.01, marks=pytest.mark.long), 0.05])
@pytest.mark.parametrize("seq", [True, False], ids=["seq", "no seq"])
@pytest.mark.parametrize("trials", [5, pytest.param(20, marks=pytest.mark.long)])
def test_lost_records_leave_most_verdicts(late: bool, share: float, seq: bool, trials: int) -> None:
    """With up to 5 % of the records lost the verdict stays in four trials of five, and no other rank is named."""
    stays = 0
    for seed in range(trials):
        traces = world(late)
        if not seq:
            drop_seq((0, 1, 2, 3))(traces)
        lose(share, seed)(traces)
        found = report_of(traces)
        check_innocent(found, late)
        stays += (found.verdict.kind, found.verdict.ranks) == (
            _undamaged(late).verdict.kind,
            _undamaged(late).verdict.ranks,
        )
    assert stays >= 0.8 * trials


@pytest.mark.parametrize("late", [False, True], ids=["healthy", "straggler"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_large_losses_are_reported(late: bool, share: float) -> None:
    """A rank of which a fifth and more of the records is lost is not called whole."""
    for seed in range(4):
        traces = world(late)
        lose(share, seed, (1,))(traces)
        found = report_of(traces)
        check_innocent(found, late)
        damaged = next(row for row in found.ranks if row.rank == 1)
        assert damaged.status != "ok" or damaged.reason
