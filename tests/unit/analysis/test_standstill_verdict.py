"""In the report of a job that stood still permanently, this comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope.analysis.standstill import add_standstill
from rankscope.records.report import Verdict
from rankscope.records.running.hang import HangVerdict

HANG = HangVerdict(
    kind="not_entered",
    ranks=[37],
    sentence="Rank 37 has not entered all-reduce 8,812 of group dp; 63 ranks wait there.",
    why=["Rank 37 is in train.py:212."],
    next="Look at train.py:212.",
)


def nothing() -> Verdict:
    return Verdict(kind="insufficient_data", reason="never_opened", sentence="No verdict: the job ended.", next=["Run"])


def test_a_standstill_is_the_verdict_where_there_is_no_other() -> None:
    verdict = nothing()
    add_standstill(verdict, HANG)
    assert (verdict.sentence, verdict.reason) == (HANG.sentence, "stood_still")
    assert verdict.why == ["Rank 37 is in train.py:212.", "No verdict: the job ended."]
    assert verdict.next == ["Look at train.py:212.", "Run"]


def test_a_standstill_comes_before_the_reasons_of_another_verdict() -> None:
    verdict = Verdict(
        kind="straggler", ranks=[5], sentence="Rank 5 holds up every step.", why=["It waits."], next=["A"]
    )
    add_standstill(verdict, HANG)
    assert (verdict.kind, verdict.ranks, verdict.sentence) == ("straggler", [5], "Rank 5 holds up every step.")
    assert verdict.why == [f"The job stood still afterwards: {HANG.sentence}", "It waits."]
    assert verdict.next == ["Look at train.py:212.", "A"]


@pytest.mark.parametrize("hang", [None, replace(HANG, resumed=True), replace(HANG, kind="long")])
def test_a_job_that_went_on_is_judged_as_any_other(hang: HangVerdict | None) -> None:
    verdict = nothing()
    add_standstill(verdict, hang)
    assert verdict == nothing()


def test_a_job_that_ended_well_did_not_stand_still() -> None:
    """Its last evaluation took long, in one call that looked the same whenever it was asked."""
    verdict = nothing()
    add_standstill(verdict, HANG, exit_code=0)
    assert verdict == nothing()


def test_what_took_long_until_a_job_failed_is_a_reason_and_no_verdict() -> None:
    verdict, long = nothing(), replace(HANG, kind="long", sentence="Rank 37 goes on, in evaluate.", idle_s=612.0)
    add_standstill(verdict, long, exit_code=1)
    assert verdict.sentence == nothing().sentence
    assert verdict.why == ["The job made no step for 612 s or more before it ended: Rank 37 goes on, in evaluate."]
    assert not verdict.ranks
