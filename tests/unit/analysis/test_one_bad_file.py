"""One bad file of many: its rank loses calls and steps, no other result changes, and Trust names it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest

from rankscope.analysis.evidence.anomalies import find_anomalies
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.records.report import ClusterReport, Verdict
from rankscope.report.formats import markdown
from rankscope.trace.columns import TRUNCATED, RankTrace, Steps

from .hurt import keep, lose
from .test_diagnosis import cut
from .test_worlds import PAUSE, report_of
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


def of_another_run(traces: list[RankTrace], steps: int = 4) -> None:
    """A healthy run's, of the day before: the same calls, in steps without the 6 ms."""
    (own,) = simulate(by_hand(2, tp=False), Mesh(dp=2), steps=steps, noise=0.02)[:1]
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


def lost_begin(traces: list[RankTrace]) -> None:
    """Nothing of the first third is in the file, but of kernels that ran later their launches are not either."""
    trace = traces[HURT]
    first, last = int(trace.events.start.min()), int(trace.events.end.max())
    keep(trace, trace.events.start >= first + (last - first) // 3)
    steps = trace.steps
    whole = steps.start >= first + (last - first) // 3
    trace.steps = Steps(steps.number[whole], steps.start[whole], steps.duration[whole])
    trace.events.step = np.maximum(trace.events.step - np.int32(len(whole) - whole.sum()), np.int32(-1))


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


@pytest.mark.parametrize(
    "hurt",
    [cut_file, lost_begin, lost_record, missing_rank, no_launch, of_another_run, of_another_job],
)
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
    assert {row.status for row in report.ranks if row.rank != HURT} == {"ok"}
    assert "ranks " not in said[0].partition("(")[0]  # nobody else is named


def test_what_is_left_out_shortens_no_other_rank(whole: tuple[list[RankTrace], ClusterReport]) -> None:
    traces = copy.deepcopy(whole[0])
    of_another_run(traces, steps=2)
    report = same_verdict(traces, whole[1].verdict)
    assert {(row.status, row.steps) for row in report.ranks if row.rank != HURT} == {("ok", 4)}
    assert not [note for note in report.run.notes if "left out" in note]


@pytest.mark.parametrize("known", [True, False])
def test_what_a_cut_file_lacks_is_no_difference_of_its_rank(known: bool) -> None:
    """Of a file that was cut off, a thread can be missing from then on, which looks like a pause."""
    traces = simulate(by_hand(2, tp=False), Mesh(dp=4), steps=4, noise=0.02, faults=[Fault(2, PAUSE)])
    traces[2].repairs = {TRUNCATED: 1} if known else {}
    found = find_anomalies([analyse_window(traces)], 10.0)
    assert {difference.rank for difference in found} == (set() if known else {2})
