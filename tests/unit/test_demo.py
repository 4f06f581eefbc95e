"""The table of faults is complete and in the help, and each fault is within the recorded window."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rankscope import cli
from rankscope.causes.table import CAUSES
from rankscope.compose import compose
from rankscope.demo import JOBS
from rankscope.demo.faults import FAULTS

ON_DEVICES = {"host_sync", "h2d_copy", "allocator", "launch_bound"}
"""No job on the CPU waits for its device, copies to it, allocates on it or launches kernels."""


def test_every_cause_is_planted() -> None:
    planted = {fault.cause for fault in FAULTS.values()}
    assert {cause.name for cause in CAUSES} - planted == {*ON_DEVICES, "unexplained"}


def test_the_help_has_a_line_for_each_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["demo", "--help"])
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [line for name, fault in FAULTS.items() if (line := [name, fault.line()]) not in lines] == []


def test_a_demo_without_arguments_is_the_fault_that_every_test_run_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr("rankscope.cli.verbs.setup.demo.run", lambda words: given.append(words) or 0)
    assert cli.main(["demo"]) == 0
    assert given[0][given[0].index("--fault") :][:4] == ["--fault", "input_stall", "--bad-rank", "1"]


def test_the_guide_tells_the_same_truth() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "demo.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", guide, re.M))
    due = {"bad rank": "the bad rank, `{}`", "taking turns": "every rank, `{}`"}
    named = {"all ranks": "no rank named; the finding `{}`", "no rank": "*Balanced*; no rank named"}
    told = {name: {**due, **named}[fault.who].format(fault.cause) for name, fault in FAULTS.items()}
    assert rows == told | {"neighbour": "*Machine busy*; no rank named"}


@pytest.mark.parametrize("name", FAULTS)
def test_the_window_holds_the_trouble(name: str) -> None:
    fault = FAULTS[name]
    config = compose(list(fault.settings), []).config
    ((first, last),) = config.schedule.windows()
    assert last < fault.steps
    acting = {r: [s for s in range(first, last + 1) if fault.acts(s, r, 4, bad=2)] for r in range(4)}
    assert [r for r in range(4) if acting[r]] == {"all ranks": [0, 1, 2, 3]}.get(fault.who, fault.stragglers(4, 2))
    # where it is rare it is not the first step recorded, whose beginning may be lost
    assert fault.every == 1 or all(first < s for steps in acting.values() for s in steps)


def test_ranks_take_turns() -> None:
    turns = FAULTS["turns"]
    assert [[r for r in range(3) if turns.acts(s, r, 3, bad=0)] for s in range(4)] == [[0], [1], [2], [0]]


def test_every_fault_has_its_script() -> None:
    assert [name for name, fault in FAULTS.items() if not (JOBS / fault.script).is_file()] == []


def test_what_a_fault_needs_is_said_before_the_launch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rankscope.demo.faults.find_spec", lambda name: None if name == "accelerate" else name)
    assert cli.main(["demo", "--fault", "hf_loader"]) == 2
    assert "--fault hf_loader needs accelerate; pip install accelerate" in capsys.readouterr().err
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert FAULTS["neighbour"].lacking(2) is None
    assert FAULTS["neighbour"].lacking(3) == "to bind 3 ranks to cores of their own, and has 2"
