"""Detection that the calls recorded by a window have completed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.agent.backends import outstanding


def thread(tasks: Path, number: int, name: str, state: str) -> None:
    (tasks / str(number)).mkdir(parents=True)
    (tasks / str(number) / "stat").write_text(f"{number} ({name}) {state} 1 1 0\n")


@pytest.mark.parametrize(
    ("name", "state", "ended"),
    [
        ("pt_gloo_runloop", "S", True),  # waits for a call
        ("pt_gloo_runloop", "R", False),  # ends one, or would if the system let it
        ("gloo_tcp_loop", "R", True),  # moves data and ends no event
        ("a (b) R", "S", True),
    ],
)
def test_a_thread_of_gloo_that_wants_to_run_may_be_ending_a_call(tmp_path, monkeypatch, name, state, ended):
    thread(tmp_path, 7, "python", "R")
    thread(tmp_path, 8, name, state)
    (tmp_path / "9").mkdir()  # it ended while we looked
    monkeypatch.setattr(outstanding, "_TASKS", tmp_path)
    assert outstanding.OutstandingCalls().ended(1) is ended


def test_one_whole_step_passes_and_a_system_without_proc_ends_nothing_early(tmp_path, monkeypatch):
    monkeypatch.setattr(outstanding, "_TASKS", tmp_path / "none")
    assert not outstanding.OutstandingCalls().ended(0)
    assert outstanding.OutstandingCalls().ended(1)
