"""One bad file of many: its rank loses calls and steps, no other result changes, and Trust names it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest

from rankscope.records.report import ClusterReport, Verdict
from rankscope.report.formats import markdown
from rankscope.trace.columns import RankTrace, Steps

from .hurt import keep, lose
from .test_diagnosis import cut
from .test_worlds import report_of
from .worlds import MS, Fault, Item, Mesh, by_hand, simulate

pytestmark = pytest.mark.data

RANKS = 64
LATE, HURT = 21, 33
WITHIN = 0.02
"""Of the cost without a bad file."""


def cut_file(traces: list[RankTrace]) -> None:
    trace = traces[HURT]
    last, begun = int(trace.steps.end[1]), int(trace.events.start.min())
    cut(trace, 0.0, (last - begun) / float(trace.events.end.max() - begun))
    trace.steps = Steps(trace.steps.number[:2], trace.steps.start[:2], trace.steps.duration[:2])


def lost_record(traces: list[RankTrace]) -> None:
    lose(traces[HURT], [len(traces[HURT].collectives) // 2])


def lost_launches(traces: list[RankTrace]) -> None:
    """One in twenty of the host's calls is not in the file; the kernels that they launched are."""
    trace = traces[HURT]
    kept = np.ones(len(trace.events), np.bool_)
    kept[np.flatnonzero(trace.events.launching)[7::20]] = False
    keep(trace, kept)


def no_launch(traces: list[RankTrace]) -> None:
    events = traces[HURT].events
    keep(traces[HURT], ~events.launching | (events.stream >= 0))


def of_another_run(traces: list[RankTrace]) -> None:
    """A healthy run's, of the day before: the same calls, in steps without the 6 ms."""
    (own,) = simulate(by_hand(2, tp=False), Mesh(dp=2), steps=4, noise=0.02)[:1]
    own.rank, own.meta.world_size = HURT, RANKS
    own.groups = traces[HURT].groups
    own.events.start -= 86_400 * 1000 * MS
    own.steps.start -= 86_400 * 1000 * MS
    traces[HURT] = own


def of_another_job(traces: list[RankTrace]) -> None:
    """The file says the right rank, but its calls are those of a pair of ranks that do something else."""
    (own,) = simulate(by_hand(3, tp=True), Mesh(tp=2), steps=4, noise=0.02)[:1]
    own.rank, own.meta.world_size = HURT, RANKS
    traces[HURT] = own


def missing_rank(traces: list[RankTrace]) -> None:
    del traces[HURT]


@pytest.fixture(scope="module")
def whole() -> tuple[list[RankTrace], ClusterReport]:
    fault = Fault(LATE, Item("fetch", host=6 * MS))
    traces = simulate(by_hand(2, tp=False), Mesh(dp=RANKS), steps=4, noise=0.02, faults=[fault])
    for trace in traces:
        trace.meta.world_size = RANKS
    report = report_of(copy.deepcopy(traces))
    assert (report.verdict.ranks, report.verdict.cause) == ([LATE], "input_stall")
    return traces, report


def same_verdict(traces: list[RankTrace], before: Verdict) -> ClusterReport:
    report = report_of(traces)
    after = report.verdict
    assert (after.kind, after.ranks, after.cause) == (before.kind, before.ranks, before.cause)
    assert after.cost_ms_per_step == pytest.approx(before.cost_ms_per_step, rel=WITHIN)
    return report


def test_lost_launches_hold_nobody_in_place(whole: tuple[list[RankTrace], ClusterReport]) -> None:
    traces = copy.deepcopy(whole[0])
    lost_launches(traces)
    same_verdict(traces, whole[1].verdict)


@pytest.mark.parametrize("hurt", [cut_file, lost_record, missing_rank, no_launch, of_another_run, of_another_job])
def test_the_verdict_and_its_cost_stay(
    whole: tuple[list[RankTrace], ClusterReport], hurt: Callable[[list[RankTrace]], None]
) -> None:
    traces, before = copy.deepcopy(whole[0]), whole[1].verdict
    hurt(traces)
    report = same_verdict(traces, before)
    text = markdown.render(report)
    said = [line for line in text.splitlines() if line.startswith("Note:") and str(HURT) in line]
    assert len(said) == 1, text
    others = [row.rank for row in report.ranks if row.compute_pct is not None and row.rank != HURT]
    assert len(others) == RANKS - 1
