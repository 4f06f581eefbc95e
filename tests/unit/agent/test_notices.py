"""Checks of notices that other processes have written."""

from __future__ import annotations

import json
import os
import time

import pytest

from rankscope.agent.windows import agreement as agreement_module
from rankscope.agent.windows.agreement import Agreement
from rankscope.agent.windows.notices import Notices
from rankscope.config import ScheduleConfig, ToolConfig, to_agent_spec
from rankscope.records.spec import CaptureRequest
from rankscope.rundir.spool import Spool
from rankscope.statistics.step_time import StepTimeEstimate

WINDOW = {"number": 0, "warm": 4, "first": 6, "last": 11}
REQUEST = {"name": "request_0000", "steps": 5, "warmup": 2}


@pytest.fixture
def notices(tmp_path):
    return Notices(Spool(tmp_path), 0)


@pytest.mark.parametrize(
    "change",
    [
        {"last": 6 + 1000},  # of 1,001 steps
        {"last": 5},
        {"warm": 7},
        {"number": 1},
        {"first": "six"},
        {"warm": -1},
        {"last": 10**30},
        {"backend": 3},
        {"first": None},
    ],
)
def test_an_announcement_that_no_rank_can_follow_is_none(notices, change):
    notices.post("window_0", json.dumps(WINDOW | change))
    with pytest.raises(ValueError, match=r"."):
        notices.announced(0)


def test_a_window_of_a_thousand_steps_is_one(notices):
    notices.post("window_0", json.dumps(WINDOW | {"last": 6 + 999}))
    assert notices.announced(0).last == 1005


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(REQUEST | {"steps": 1_000_000}),
        json.dumps(REQUEST | {"steps": True}),
        json.dumps(REQUEST | {"warmup": "2"}),
        json.dumps(REQUEST | {"detail": "everything"}),
        json.dumps([REQUEST]),
        "null",
        "{",
        "\x00" * 100,
        "[" * 100_000,
    ],
    ids=["too many", "true", "text", "unknown detail", "list", "null", "cut", "zeros", "deep"],
)
def test_a_request_that_no_rank_can_follow_is_passed_over_and_the_next_is_served(tmp_path, notices, text):
    # GIVEN such a request and, behind it, a good one, when a step takes 100 ms
    spool = Spool(tmp_path)
    spool.request(0).write_text(text)
    spool.request(1).write_text(json.dumps(REQUEST | {"name": "request_0001"}))
    config = ToolConfig()
    config.schedule.skip_first = 10_000
    step_time = StepTimeEstimate()
    for _ in range(100):
        step_time.add(100.0)
    agreement = Agreement(to_agent_spec(config, run_id="r", spool=tmp_path), 0, notices, step_time, 0.25)
    due = [step for step in range(100, 120) if agreement.due(step)]
    assert due
    window, planned = agreement.take()
    assert (window.origin, window.last - window.first + 1, planned) == ("request_0001", 5, None)
    assert notices.answered() == 2


def asked_by_scripts(tmp_path, notices, *requests, **budget):
    """The window that rank 0 announces at step 120 for what scripts asked, when a step takes 100 ms; and the rank."""
    config = ToolConfig()
    config.schedule.skip_first = 10_000
    for name, value in budget.items():
        setattr(config.budget, name, value)
    step_time = StepTimeEstimate()
    for _ in range(100):
        step_time.add(100.0)
    agreement = Agreement(to_agent_spec(config, run_id="r", spool=tmp_path), 0, notices, step_time, 0.25)
    for request in requests:
        notices.ask(CaptureRequest(**REQUEST | request))
    agreement.due(120)
    return notices.announced(0), agreement


def test_what_several_ranks_ask_for_is_one_window(tmp_path, notices):
    # GIVEN two ranks that ask in step 118 for three steps
    window, agreement = asked_by_scripts(tmp_path, notices, *[{"steps": 3, "at": 118, "reason": "loss spike"}] * 2)
    assert (window.origin, window.last - window.first + 1) == ("script", 3)
    assert next(step for step in range(121, 160) if agreement.due(step)) == window.warm
    assert agreement.take()[0] == window
    # WHEN a third is heard of after that window, which it wanted as well
    agreement.closed(window.last + 1)
    notices.ask(CaptureRequest(**REQUEST | {"steps": 3, "at": 119}))
    agreement.due(window.last + 1)
    # THEN there is no second window, but for what is asked later
    assert (notices.announced(1), notices.asked()) == (None, None)
    notices.ask(CaptureRequest(**REQUEST | {"steps": 3, "at": window.last + 1}))
    agreement.due(window.last + 2)
    assert notices.announced(1).origin == "script"


@pytest.mark.parametrize("budget", [{"windows": 1}, {"megabytes": 0.0}])
def test_what_a_script_asks_for_beyond_the_budget_is_refused_and_said(tmp_path, notices, budget, monkeypatch):
    said = []
    monkeypatch.setattr(agreement_module, "keep_message", said.append)
    if "windows" in budget:  # the first is within it
        _, agreement = asked_by_scripts(tmp_path, notices, {"steps": 3, "at": 118}, **budget)
        next(step for step in range(121, 160) if agreement.due(step))
        last = agreement.take()[0].last
        notices.ask(CaptureRequest(**REQUEST | {"steps": 3, "at": last + 5}))
        agreement.due(last + 5)
    else:
        window, agreement = asked_by_scripts(tmp_path, notices, {"steps": 3, "at": 118}, **budget)
        assert window is None
    assert notices.asked() is None
    assert any("was refused: budget.windows or budget.megabytes" in message for message in said)


def test_a_window_that_has_ended_makes_way_for_the_next_of_the_plan(tmp_path, notices):
    # 3 steps, then twice: wait 1, warm up 1, record 2: the windows record 5 to 6, and, after a warm-up in 8, 9 to 10
    config = ToolConfig()
    config.schedule = ScheduleConfig(skip_first=3, wait=1, warmup=1, active=2, repeat=2)
    agreement = Agreement(to_agent_spec(config, run_id="r", spool=tmp_path), 1, notices, StepTimeEstimate(), 0.25)
    assert agreement.due(4)
    agreement.take()
    assert [step for step in range(5, 20) if agreement.plan_comes(step)] == [8, 9]


def test_a_spool_that_is_gone_is_no_error(tmp_path):
    notices = Notices(Spool(tmp_path / "gone"), 0)
    notices.post("slow_step")
    assert notices.read("slow_step") is None
    assert not notices.take("slow_step")
    assert (notices.announced(0), notices.request(0), notices.answered(), notices.gathered_megabytes()) == (
        None,
        None,
        0,
        0.0,
    )


def test_a_board_on_which_nothing_has_changed_is_not_read_again(tmp_path, notices, monkeypatch):
    # GIVEN a board that was last changed a second ago, and a rank 0 whose next window is far away
    spool, second = Spool(tmp_path), 1_000_000_000
    then = time.time_ns() - second - second // 3
    os.utime(tmp_path, ns=(then, then))
    config = ToolConfig()
    config.schedule.skip_first = 10_000
    step_time = StepTimeEstimate()
    for _ in range(100):
        step_time.add(100.0)
    reads: list[int] = []
    read = notices.request
    monkeypatch.setattr(notices, "request", lambda number: reads.append(number) or read(number))
    agreement = Agreement(to_agent_spec(config, run_id="r", spool=tmp_path), 0, notices, step_time, 0.25)
    assert not any(agreement.due(step) for step in range(100, 120))
    assert reads == [0]
    # WHEN somebody asks for a window
    spool.request(0).write_text(json.dumps(REQUEST | {"steps": 5}))
    # THEN the next step hears of it, and what rank 0 announces for it is taken
    assert not agreement.due(120)
    assert notices.announced(0).origin == "request_0000"
    assert any(agreement.due(step) for step in range(121, 160))


@pytest.mark.parametrize("ago_ns", [0, 1_000_000, -1_000_000_000], ids=["now", "within a tick", "by a clock ahead"])
def test_a_change_that_may_not_have_been_the_last_is_looked_at_again(tmp_path, notices, ago_ns):
    then = time.time_ns() - ago_ns
    os.utime(tmp_path, ns=(then, then))
    now = time.time_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: then + ago_ns)
        assert notices.changed()
        assert notices.changed()
        patch.setattr(time, "time_ns", lambda: now() + 10_000_000_000)
        assert notices.changed()
        assert notices.changed() == (then % 1_000_000_000 == 0)


def test_a_file_system_that_counts_seconds_is_looked_at_always(tmp_path, notices):
    os.utime(tmp_path, (1_000_000, 1_000_000))
    assert notices.changed()
    assert notices.changed()


def test_a_folder_that_is_gone_is_looked_at(tmp_path):
    assert Notices(Spool(tmp_path / "gone"), 0).changed()
