"""The verdict of the windows combined with the verdict of the step logs."""

from __future__ import annotations

import pytest

from rankscope.analysis.between_windows import join
from rankscope.records.report import Verdict
from rankscope.records.running.between import BetweenVerdict, SlowPattern


def between(**pattern) -> BetweenVerdict:
    pattern = {"kind": "every", "ranks": [1], "period": 25, "first": 24, "last": 699, "cost_ms": 4.0, "seen": 28,
               "sentence": "Rank 1 is late."} | pattern  # fmt: skip
    found = SlowPattern(**pattern)
    return BetweenVerdict(kind="named", ranks=list(found.ranks), steps=690, step_ms=100.0, patterns=[found])


def nobody() -> BetweenVerdict:
    return BetweenVerdict(kind="nobody", steps=690, step_ms=100.0)


def test_a_window_that_missed_the_pattern_gives_way():
    verdict, found = Verdict(kind="balanced", sentence="No rank."), between(place="input")
    join(verdict, found, [(11, 18)])
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("straggler", [1], "input_stall")
    assert (verdict.cost_ms_per_step, verdict.step_ms, verdict.sentence) == (4.0, 100.0, "Rank 1 is late.")
    assert "have no such step" in found.window
    assert verdict.why[-1] == "The windows alone: No rank."
    assert verdict.between is found


@pytest.mark.parametrize(
    ("window", "inside"), [((11, 23), False), ((24, 24), True), ((45, 50), True), ((50, 73), False)]
)
def test_whether_a_window_has_a_step_of_the_pattern(window, inside):
    found = between()  # steps 24, 49, 74, ...
    join(Verdict(kind="balanced"), found, [window])
    assert ("by themselves they name nobody" in found.window) is inside


def test_a_small_cost_is_reported_and_does_not_replace_the_verdict():
    verdict = Verdict(kind="balanced", sentence="No rank.")
    join(verdict, between(cost_ms=1.5), [(11, 18)])  # 1.5 % of a step
    assert (verdict.kind, verdict.sentence) == ("balanced", "No rank.")
    assert "no such step" in verdict.why[-1]


def test_both_agree():
    verdict = Verdict(kind="straggler", ranks=[1], sentence="Rank 1.")
    join(verdict, between(), [(11, 18)])
    assert (verdict.kind, verdict.sentence) == ("straggler", "Rank 1.")
    assert "agrees on rank 1" in verdict.why[-1]


def test_a_disagreement_is_reported():
    verdict = Verdict(kind="straggler", ranks=[0], sentence="Rank 0.")
    join(verdict, between(), [(11, 18)])
    assert (verdict.ranks, verdict.sentence) == ([0], "Rank 0.")
    assert "disagree: the window names rank 0" in verdict.why[-1]
    verdict = Verdict(kind="straggler", ranks=[0], sentence="Rank 0.")
    join(verdict, nobody(), [(11, 18)])
    assert "no rank stands out" in verdict.why[-1]


def test_stages_of_a_pipeline_are_not_named():
    verdict, found = Verdict(kind="pipeline"), between()
    join(verdict, found, [(11, 18)])
    assert (verdict.kind, found.kind, found.ranks) == ("pipeline", "nobody", [])


def test_without_a_window_the_step_log_is_the_verdict():
    verdict, found = Verdict(kind="insufficient_data", sentence="No data."), between()
    join(verdict, found, [])
    assert (verdict.kind, found.window) == ("straggler", "")
    verdict = Verdict(kind="balanced", sentence="No rank.")
    join(verdict, BetweenVerdict(kind="insufficient_data"), [])
    assert (verdict.kind, verdict.why) == ("balanced", [])
