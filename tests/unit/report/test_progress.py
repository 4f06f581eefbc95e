"""Bars on a terminal, otherwise lines."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from rankscope.progress import show_progress
from support.terminal import on_a_terminal

TRACES = Path(__file__).parents[2] / "data" / "cases" / "23_straggler_late_rank" / "traces"


def drawn(**options: object) -> tuple[str, list[str]]:
    stream, said = io.StringIO(), []
    console = Console(file=stream, width=90, **options)  # type: ignore[arg-type]
    with show_progress(said.append, console) as doing:
        load, stages = doing.bytes("loading"), doing.stages(2)
        load(0, 30_000_000, "")
        load(20_000_000, 30_000_000, "rank_0.json")
        stages("comparing [red]")
        stages("computing")
    return stream.getvalue(), said


def test_bars_with_rates_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text, said = drawn(force_terminal=True, color_system=None)
    assert re.search(r"loading ━+.* 20 of 30 MB", text)
    assert re.search(r"comparing \[red\] +0 of 2", text)
    assert re.search(r"computing +━+.* 1 of 2", text)
    assert said == []
    last = text.rstrip().splitlines()[-1]
    assert "loading" not in last, "one bar at a time"


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    text, said = drawn(force_terminal=False)
    assert text == ""
    assert said == ["comparing [red]", "computing"]
    monkeypatch.setenv("TERM", "dumb")
    assert drawn(force_terminal=True) == (text, said)


@pytest.mark.process
@pytest.mark.parametrize("colour", [True, False])
def test_analyze_draws_on_stderr_only(colour: bool) -> None:
    words = [sys.executable, "-m", "rankscope", "analyze", "--no-hta", str(TRACES)]
    text, stdout, code = on_a_terminal(words, "stderr", TERM="xterm", **({} if colour else {"NO_COLOR": "1"}))
    assert code == 0
    assert "loading traces" in text
    assert " MB" in text
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", text)) is colour
    assert stdout.startswith(b"Verdict")
    assert b"\x1b" not in stdout
