"""Steps at which rank 0 announces windows; the expected steps are counted by hand."""

from __future__ import annotations

import pytest

from rankscope.agent.windows.planner import Planner
from rankscope.records.spec import BudgetSpec, CaptureRequest, ScheduleSpec

PLAN = ScheduleSpec(skip_first=10, wait=1, warmup=2, active=6, repeat=1)  # warm-up 11 and 12, records 13 to 18
NONE = ScheduleSpec(skip_first=10, wait=1, warmup=2, active=6, repeat=0)
ASKED = CaptureRequest(name="request_0000", steps=5, warmup=2)


def planner(schedule=PLAN, backend="inline", **budget) -> Planner:
    limits = {"windows": 20, "megabytes": 100.0, "step_pct": 5.0, "slow_step": 3.0} | budget
    return Planner(schedule, BudgetSpec(**limits), 3, 0.25, backend)


def ask(planner, completed, number=0, *, step_s=0.1, sync_interval=1, megabytes=0.0, **wishes):
    wishes = {"request": None, "slow_step": wishes.pop("slow", False)} | wishes
    return planner.next(number, completed, step_s, sync_interval, megabytes=lambda: megabytes, **wishes)


def test_a_planned_window_is_announced_when_it_is_near_and_only_once():
    leader = planner()
    assert ask(leader, 7) is None
    window = ask(leader, 8)  # three steps before the warm-up
    assert (window.warm, window.first, window.last, window.backend) == (11, 13, 18, "inline")
    assert ask(leader, 9, number=1) is None


def test_a_planned_window_that_was_missed_comes_next():
    # GIVEN steps that are counted from the 16th on, of which three have to pass until their length is known
    leader = planner()
    assert ask(leader, 16, step_s=0.0) is None
    window = ask(leader, 19, step_s=0.01)
    # THEN it warms up a quarter of a second later, which is 25 steps of 10 ms, and is as long as planned
    assert (window.warm, window.first, window.last, window.origin) == (44, 46, 51, "plan")
    assert ask(leader, 20, number=1) is None


def test_a_planned_window_that_can_still_be_met_is_not_moved():
    window = ask(planner(), 13)
    assert (window.warm, window.first, window.last) == (11, 13, 18)


def test_when_steps_are_counted_anew_the_plan_comes_again():
    leader = planner()
    assert ask(leader, 8).first == 13
    leader.again()
    assert ask(leader, 7, number=1) is None
    assert ask(leader, 8, number=1).first == 13


@pytest.mark.parametrize(
    ("backend", "records", "reason"),
    [
        ("auto", "inline", None),
        ("inline", "inline", None),
        ("cuda_profiler", "cuda_profiler", None),
        ("kineto", "inline", "can end the job"),
        ("kineto_alone", "inline", "can end the job"),
    ],
)
def test_libkinetos_own_threads_never_record_and_the_reason_is_noted(backend, records, reason):
    window = ask(planner(backend=backend), 8)
    assert window.backend == records
    assert (window.backend_reason is None) == (reason is None)
    assert (reason or "") in (window.backend_reason or "")


@pytest.mark.parametrize(("step_s", "warm"), [(0.1, 103), (0.01, 125)])
def test_a_request_is_announced_a_quarter_of_a_second_ahead(step_s, warm):
    # steps of 10 ms: 25 of them are a quarter of a second, more than the lead of 3
    window = ask(planner(NONE), 100, step_s=step_s, request=ASKED)
    assert (window.warm, window.first, window.last) == (warm, warm + 2, warm + 6)
    assert window.origin == "request_0000"


def test_announcements_are_earlier_if_the_host_runs_ahead():
    # a quarter of a second is 25 steps of 10 ms, and nine more may be over at once
    window = ask(planner(NONE), 100, step_s=0.01, sync_interval=10, request=ASKED)
    assert window.warm == 134


def test_a_request_waits_for_a_planned_window_that_is_near():
    leader = planner()
    assert ask(leader, 5, request=ASKED) is None  # would record 10 to 14, the plan warms up at 11
    window = ask(leader, 8, request=ASKED)
    assert (window.origin, window.first) == ("plan", 13)
    assert ask(leader, 19, number=1, request=ASKED).origin == "request_0000"


def test_a_slow_step_opens_a_window_when_the_budget_allows():
    # warm-up 1 and 6 recorded steps are 7; 5 % of 100 steps are 5, of 200 are 10
    assert ask(planner(NONE), 100, slow=True) is None
    window = ask(planner(NONE), 200, slow=True)
    assert (window.warm, window.first, window.last, window.origin) == (203, 204, 209, "slow_step")


def test_a_window_over_the_next_step_of_a_pattern_when_that_is_near_and_affordable():
    every = CaptureRequest(name="pattern", steps=6, warmup=1, at=24, every=25)
    # the next that can be met from step 200 on is 224, of six steps the third
    assert [ask(planner(NONE), completed, pattern=every) for completed in (200, 214)] == [None, None]
    window = ask(planner(NONE), 215, pattern=every)
    assert (window.warm, window.first, window.last, window.origin) == (221, 222, 227, "pattern")
    assert ask(planner(NONE, step_pct=3.0), 215, pattern=every) is None  # 7 of 227 steps are 3.1 %
    # a step that is too near is left for the next
    assert ask(planner(NONE), 219, pattern=every) is None
    assert ask(planner(NONE), 240, pattern=every).first == 247
    # a request comes first, and what goes on in all steps is recorded at once
    assert ask(planner(NONE), 215, pattern=every, request=ASKED).origin == "request_0000"
    always = CaptureRequest(name="pattern", steps=6, warmup=1)
    assert ask(planner(NONE), 215, pattern=always).first == 219


def test_windows_every_so_often_end_with_the_budget():
    often = ScheduleSpec(skip_first=5, wait=1, warmup=1, active=2, repeat=1, every=100)
    leader = planner(often, windows=2)
    # 3 steps of the first 8 are more than 5 %, but the first window is never left out
    assert ask(leader, 1) is None
    assert ask(leader, 3).first == 7
    # it counts: 6 steps of 108 are more than 5 %, of 208 they are less
    assert ask(leader, 103, number=1) is None
    assert ask(leader, 106, number=1) is None
    assert ask(leader, 203, number=1).first == 207
    assert ask(leader, 303, number=2) is None
    second = planner(often)
    assert ask(second, 3).first == 7
    assert ask(second, 206, number=1, megabytes=101.0) is None
    assert ask(planner(often, windows=0), 3) is None


def test_a_request_waits_until_the_length_of_a_step_is_known():
    leader = planner(NONE)
    assert ask(leader, 1, step_s=0.0, request=ASKED) is None
    assert ask(leader, 4, step_s=0.01, request=ASKED).warm == 29
