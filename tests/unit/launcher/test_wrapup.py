"""After the job: signals end the process at once, and progress does not flood the terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from rankscope.launcher.wrapup import _calmly

WAITING = """
import sys, time
from types import SimpleNamespace
from rankscope.config import ToolConfig
from rankscope.launcher.elastic import Ending
from rankscope.launcher.wrapup import wrap_up

class Helper:
    def finish(self, exit_code, *, progress, patience_s):
        print("ready", flush=True)
        time.sleep(60)

session = SimpleNamespace(helper=Helper(), run_dir=SimpleNamespace(path="r"), spool=SimpleNamespace(path="s"))
wrap_up(session, Ending(int(sys.argv[1])), ToolConfig(), print)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("code", [0, 1])
def test_a_signal_after_the_job_ends_at_once_with_torchruns_code(number: signal.Signals, code: int) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITING, str(code)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(10) == code


def test_progress_is_told_only_now_and_then() -> None:
    now = 100.0
    told: list[str] = []
    say = _calmly(told.append, pause_s=5, clock=lambda: now)
    for step in range(130):
        now = 100 + step / 10
        say(f"{now - 100:.0f} s")
    assert told == ["1 s", "6 s", "11 s"]


def test_a_short_wait_needs_no_words() -> None:
    told: list[str] = []
    say = _calmly(told.append, clock=time.monotonic)
    say("gathering")
    assert told == []
