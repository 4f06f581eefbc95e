"""Progress while a run is wrapped up is bounded on the terminal, and cannot stop the gathering."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rankscope.launcher.progress import bars, calmly, gathering
from rankscope.rundir.spool import Spool


def test_progress_lines_are_limited() -> None:
    now = 100.0
    told: list[str] = []
    say = calmly(told.append, pause_s=5, clock=lambda: now)
    for step in range(130):
        now = 100 + step / 10
        say(f"{now - 100:.0f} s")
    assert told == ["1 s", "6 s", "11 s"]


def test_a_short_wait_prints_nothing() -> None:
    told: list[str] = []
    say = calmly(told.append, clock=time.monotonic)
    say("gathering")
    assert told == []


class Drawn:
    """Stands for ``rankscope.progress.Work``."""

    def __init__(self, error: Exception | None = None) -> None:
        self.seen: list[tuple[float, float]] = []
        self.error = error

    def bytes(self, title: str) -> Any:
        def tell(done: float, total: float) -> None:
            self.seen.append((done, total))
            if self.error is not None:
                raise self.error

        return tell


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    for rank, size in enumerate((300, 100)):
        (tmp_path / f"window_0_1_{rank}.json").write_text("{}")
        (tmp_path / f"trace_0_1_{rank}.json").write_bytes(b" " * size)
    (tmp_path / "trace_0_1_7.json").write_bytes(b"not announced")
    (tmp_path / "window_0_1_8.json").write_text("{}")  # its trace never came
    return Spool(tmp_path)


def test_bars_show_bytes_and_text_shows_the_rest(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    now, said, drawn = 0.0, [], Drawn()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(calmly, "__defaults__", (5.0, time.monotonic))
    told = gathering(spool, drawn, said.append)  # type: ignore[arg-type]
    now = 100.0
    told("gathering 3 trace(s)")
    spool.trace(0, 1, 0).unlink()
    told("gathering 2 trace(s)")
    spool.trace(0, 1, 1).unlink()
    told("waiting for 1 other node(s): n1")
    assert drawn.seen == [(0, 400), (300, 400)]
    assert said == ["waiting for 1 other node(s): n1"]


def test_a_lost_terminal_stops_nothing(spool: Spool) -> None:
    drawn = Drawn(OSError(5, "Input/output error"))
    gathering(spool, drawn, pytest.fail)("gathering 2 trace(s)")  # type: ignore[arg-type]
    assert drawn.seen == [(0, 400)]


def test_no_bars_where_they_cannot_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setitem(__import__("sys").modules, "rankscope.progress", None)  # an import that fails
    with bars(pytest.fail) as doing:
        assert doing is None
    monkeypatch.setattr("sys.stderr", None)
    with bars(pytest.fail) as doing:
        assert doing is None
