"""Slow steps between windows of a real job are in the step log, and in the verdict."""

from __future__ import annotations

import pytest

from rankscope.between.live import read_live
from rankscope.between.step_logs import read_step_log
from rankscope.records.running.step_log import CHECKPOINT, EVALUATION, WRAPPED

pytestmark = pytest.mark.forked


def test_a_burst_that_the_window_missed_is_named_in_the_report(run):
    # rank 1's data loader takes 80 ms longer in every 25th step; the window records steps 4 and 5
    done = run(
        "between.py", "burst", "--ms", 80, "--steps", 400, "--width", 64, steps="skip_first=1 warmup=1 active=2",
        report=True, flags=["-S", "step_log.calls_pct=5"],
    )  # fmt: skip
    assert done.code == 0, done.stderr
    verdict = done.report.verdict
    between = verdict.between
    (pattern,) = [p for p in between.patterns if p.ranks]
    assert (between.kind, between.ranks) == ("named", [1])
    assert (pattern.kind, pattern.period, pattern.first % 25, pattern.place) == ("every", 25, 24, "input")
    assert 40 < pattern.size_ms < 120
    assert "no such step" in between.window
    assert verdict.ranks in ([1], []), "the window has two steps, and alone it may name nobody"
    # AND each step has its parts
    log = read_step_log(done.run.step_log(0, 1))
    assert log.steps == 400
    assert (log.flags()[1:] & WRAPPED).all()
    parts = sum(log.column(name) for name in ("before", "forward", "backward", "after"))
    assert abs(parts - log.column("step"))[1:].max() < 0.01  # each is cut to whole microseconds
    assert (log.column("input")[1:] <= log.column("before")[1:] + 0.01).all()
    assert log.column("cpu")[1:].mean() > 0.1
    # AND when its one collective began is known of the steps before the flight recorder was read
    known = log.column("issued") > 0
    known[:2] = False  # DDP finds its buckets in the second step
    assert known.sum() >= 16
    assert (log.entries["calls"][known] == 1).all()
    assert (log.column("issued") <= log.column("backward") + 0.01).all()


@pytest.mark.long
@pytest.mark.parametrize(
    ("occasion", "flag", "every"), [("evaluation", EVALUATION, 50), ("checkpoint", CHECKPOINT, 40)]
)
def test_evaluations_and_checkpoints_name_no_rank(run, occasion, flag, every):
    done = run("between.py", occasion, "--ms", 80, "--steps", 300, "--width", 64, report=True)
    assert done.code == 0, done.stderr
    between = done.report.verdict.between
    assert between.ranks == []
    told = [(p.kind, p.period, p.ranks) for p in between.patterns]
    assert (occasion, every, [0] if occasion == "checkpoint" else []) in told
    assert [t for t in told if t[0] != occasion and t[2]] == [], "a busy machine has patterns too, of no rank"
    assert (read_step_log(done.run.step_log(0, 0)).flags() & flag > 0).sum() == 300 // every - (300 % every == 0)


@pytest.mark.long
def test_a_rank_that_turns_slow_is_recorded_without_being_asked(run):
    """The step logs are judged once a minute while the job runs; rank 1 is late by 60 ms from step 200 on."""
    job = ("between.py", "since", "--ms", 60, "--steps", 2000, "--width", 64)
    done = run(*job, flags=["-S", "live.metrics=true"], steps="skip_first=1000000")
    assert done.code == 0, done.stderr
    records = done.records()
    assert [(r.status, r.origin) for r in records] == [("ok", "pattern")] * 2
    assert records[0].first_step == records[1].first_step > 200
    # AND whoever reads the run directory sees it
    assert 'rankscope_late{rank="1"' in done.run.metrics.read_text()
    assert [rank for node in read_live(done.run) for rank in node.named] == [1]
    assert "Rank 1 is" in done.stderr, "told once, while it ran"
