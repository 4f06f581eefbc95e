"""Where rank 0 announces windows: expected steps are counted by hand."""

from __future__ import annotations

import pytest

from rankscope.agent.windows.planner import Planner
from rankscope.records.spec import BudgetSpec, CaptureRequest, ScheduleSpec

PLAN = ScheduleSpec(skip_first=10, wait=1, warmup=2, active=6, repeat=1)  # warm-up 11 and 12, records 13 to 18
NONE = ScheduleSpec(skip_first=10, wait=1, warmup=2, active=6, repeat=0)
ASKED = CaptureRequest(name="request_0000", steps=5, warmup=2)


def planner(schedule=PLAN, backend="inline", no_kineto=None, **budget) -> Planner:
    limits = {"windows": 20, "megabytes": 100.0, "step_pct": 5.0, "slow_step": 3.0} | budget
    return Planner(schedule, BudgetSpec(**limits), 3, 0.25, backend, no_kineto)


def ask(planner, completed, number=0, *, step_s=0.1, beat=1, now_s=0.0, ready=False, megabytes=0.0, **wishes):
    wishes = {"request": None, "slow_step": wishes.pop("slow", False)} | wishes
    return planner.next(number, completed, step_s, beat, now_s, ready=ready, megabytes=lambda: megabytes, **wishes)


def test_a_planned_window_is_announced_when_it_is_near_and_only_once():
    leader = planner()
    assert ask(leader, 7) is None
    window = ask(leader, 8)  # three steps before the warm-up
    assert (window.warm, window.first, window.last, window.backend) == (11, 13, 18, "inline")
    assert ask(leader, 9, number=1) is None


def test_kineto_waits_until_every_rank_is_ready_and_then_leaves_time_to_hear():
    leader = planner(backend="kineto")
    assert ask(leader, 5) is None
    assert ask(leader, 40) is None
    # ready at step 41: 3 steps of lead, 2 of warm-up
    window = ask(leader, 41, ready=True)
    assert (window.warm, window.first, window.last, window.backend) == (44, 46, 51, "kineto")


def test_kineto_in_time_keeps_to_the_plan():
    window = ask(planner(backend="kineto"), 10, ready=True)
    assert (window.warm, window.first) == (11, 13)


def test_without_kineto_torch_profiler_records_and_says_why():
    window = ask(planner(backend="kineto", no_kineto="no socket"), 8)
    assert (window.backend, window.backend_reason) == ("inline", "no socket")


@pytest.mark.parametrize(("step_s", "warm"), [(0.1, 103), (0.01, 125)])
def test_a_request_is_announced_a_quarter_of_a_second_ahead(step_s, warm):
    # steps of 10 ms: 25 of them are a quarter of a second, more than the lead of 3
    window = ask(planner(NONE), 100, step_s=step_s, request=ASKED)
    assert (window.warm, window.first, window.last) == (warm, warm + 2, warm + 6)
    assert window.origin == "request_0000"


def test_a_host_that_hurries_through_nine_steps_of_ten_is_told_so_much_earlier():
    # a quarter of a second is 25 steps of 10 ms, and nine more may be over at once
    window = ask(planner(NONE), 100, step_s=0.01, beat=10, request=ASKED)
    assert window.warm == 134


def test_a_request_waits_for_a_planned_window_that_is_near():
    leader = planner()
    assert ask(leader, 5, request=ASKED) is None  # would record 10 to 14, the plan warms up at 11
    window = ask(leader, 8, request=ASKED)
    assert (window.origin, window.first) == ("plan", 13)
    assert ask(leader, 19, number=1, request=ASKED).origin == "request_0000"


def test_a_request_with_stacks_is_for_torch_profiler_once_libkineto_is_done():
    stacks = CaptureRequest(name="request_0000", steps=5, warmup=2, detail="stacks")
    leader = planner(NONE, backend="kineto")
    assert ask(leader, 100, request=stacks) is None
    assert ask(leader, 101, request=stacks, ready=True).backend == "inline"


def test_a_request_gives_kineto_half_a_minute():
    leader = planner(NONE, backend="kineto")
    assert ask(leader, 100, now_s=0.0, request=ASKED) is None
    assert ask(leader, 200, now_s=29.0, request=ASKED) is None
    assert ask(leader, 201, now_s=31.0, request=ASKED).backend == "inline"


def test_a_slow_step_opens_a_window_when_the_budget_allows():
    # warm-up 1 and 6 recorded steps are 7; 5 % of 100 steps are 5, of 200 are 10
    assert ask(planner(NONE), 100, slow=True) is None
    window = ask(planner(NONE), 200, slow=True)
    assert (window.warm, window.first, window.last, window.origin) == (203, 204, 209, "slow_step")


def test_windows_every_so_often_end_with_the_budget():
    often = ScheduleSpec(skip_first=5, wait=1, warmup=1, active=2, repeat=1, every=100)
    leader = planner(often, windows=2)
    # 3 steps of the first 8 would be more than 5 %, so the first is left out
    assert ask(leader, 1) is None
    assert ask(leader, 6) is None
    assert ask(leader, 103).first == 107
    assert ask(leader, 203, number=1).first == 207
    assert ask(leader, 303, number=2) is None
    assert ask(planner(often), 106, megabytes=101.0) is None


def test_auto_records_the_first_window_in_any_case():
    window = ask(planner(backend="auto"), 8)
    assert (window.warm, window.first, window.backend) == (11, 13, "inline")
    assert window.backend_reason.startswith("libkineto had not asked")
    assert ask(planner(backend="auto"), 8, ready=True).backend == "kineto"


def test_auto_gives_later_windows_half_a_minute():
    leader = planner(ScheduleSpec(skip_first=10, wait=1, warmup=2, active=6, repeat=2), backend="auto")
    assert ask(leader, 8).number == 0
    # the second cycle: wait 19, warm-up 20 and 21, records 22 to 27
    assert ask(leader, 17, number=1, now_s=100.0) is None
    assert ask(leader, 40, number=1, now_s=129.0) is None
    window = ask(leader, 41, number=1, now_s=131.0)
    assert (window.warm, window.first, window.last, window.backend) == (44, 46, 51, "inline")


@pytest.mark.parametrize("backend", ["inline", "cuda_profiler"])
def test_who_did_not_ask_for_kineto_is_not_told_why_it_is_not_there(backend):
    window = ask(planner(backend=backend, no_kineto="not asked for"), 8)
    assert (window.backend, window.backend_reason) == (backend, None)


def test_a_request_waits_until_the_length_of_a_step_is_known():
    leader = planner(NONE)
    assert ask(leader, 1, step_s=0.0, request=ASKED) is None
    assert ask(leader, 4, step_s=0.01, request=ASKED).warm == 29
