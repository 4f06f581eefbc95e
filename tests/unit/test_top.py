"""``rankscope top`` on a terminal, and the numbers for a script's own logger."""

from __future__ import annotations

import argparse
import io
import os
import sys
from types import SimpleNamespace

import pytest

import rankscope
from rankscope.agent.latest import latest_numbers
from rankscope.cli.parts import keys
from rankscope.cli.verbs.jobs import stuck, top
from rankscope.records.codec import to_json
from rankscope.records.running.hang import HangVerdict
from rankscope.records.running.live import NodeLive, RankLive
from rankscope.rundir.layout import RunDir

LIVE = NodeLive(
    node="n0", host="a", attempt=0, world_size=2, time_ns=1, named=[1],
    ranks=[
        RankLive(rank=0, steps=120, step_ms=104.0, own_ms=40.0, input_pct=2.0),
        RankLive(rank=1, steps=119, step_ms=105.0, own_ms=80.0, input_pct=30.0),
    ],
)  # fmt: skip


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "RUN")
    made.live_folder.mkdir(parents=True)
    made.nodes.mkdir()
    (made.nodes / "n0.claim.json").write_text("{}")
    made.live("n0").write_text(to_json(LIVE))
    return made


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of its own for this process, from :func:`use` on; whoever holds the other end presses keys."""
    pressed, own = os.openpty()

    def use() -> int:  # within the test: pytest has its own standard streams for each phase
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: own))
        monkeypatch.setattr(sys, "stdout", Screen())
        return pressed

    monkeypatch.setattr(os, "tcgetpgrp", lambda _terminal: os.getpgrp())
    yield use
    os.close(pressed)
    os.close(own)


def test_keys_of_top(run, terminal, monkeypatch):
    import termios

    pressed, presses = terminal(), iter([b"x", b"c", b"q"])

    def key_within(seconds: float, *, keys: bool) -> str:
        os.write(pressed, next(presses))
        return real(seconds, keys=keys)

    real = top.key_within
    monkeypatch.setattr(top, "key_within", key_within)
    before = termios.tcgetattr(sys.stdin.fileno())
    arguments = argparse.Namespace(path=run.path, ranks=32, once=False, identity=None)
    assert top.top_verb(arguments) == 0
    screens = sys.stdout.getvalue().split("\x1b[H\x1b[2J")[1:]
    assert len(screens) == 3, "the first, and one for each key but q"
    assert "c records a window now, q leaves" in screens[0]
    assert "request_0000: 5 steps of every rank" in screens[2]
    assert [path.stem for path in run.requests()] == ["request_0000"]
    assert termios.tcgetattr(sys.stdin.fileno()) == before


def test_a_terminal_of_another_process_group_is_left_alone(terminal, monkeypatch):
    monkeypatch.setattr(os, "tcgetpgrp", lambda _terminal: os.getpgrp() + 1)
    monkeypatch.setattr(keys.time, "sleep", lambda seconds: None)
    pressed = terminal()
    with keys.single_keys() as found:
        assert not found
        os.write(pressed, b"q")
        assert keys.key_within(2.0, keys=found) == ""


def test_numbers_for_the_scripts_own_logger(tmp_path):
    path = tmp_path / "live.json"
    assert latest_numbers(path) is None
    path.write_text(to_json(LIVE))
    assert latest_numbers(path) == {
        "rankscope/step": 119.0, "rankscope/step_ms": 105.0, "rankscope/own_ms": 80.0, "rankscope/slowest_rank": 1.0,
        "rankscope/input_pct": 30.0, "rankscope/named_ranks": 1.0,
    }  # fmt: skip
    path.write_text("{")
    assert latest_numbers(path) is None
    assert rankscope.latest() is None, "this process is no rank"


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (0, ["Stuck    Rank 1 has not entered all_reduce number 245.", "Why      One.", "         Two."]),
        (40, ["Stuck    Rank 1 has not entered", "         all_reduce number 245.", "Why      One.", "         Two."]),
    ],
)
def test_a_standstill_is_wrapped_below_its_labels_on_a_terminal_only(width, lines):
    verdict = HangVerdict(
        kind="not_entered", sentence="Rank 1 has not entered all_reduce number 245.", why=["One.", "Two."]
    )
    assert stuck.in_lines(verdict, width)[: len(lines)] == lines
