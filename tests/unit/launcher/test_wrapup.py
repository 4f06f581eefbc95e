"""After the job: signals end the process at once; bars on a terminal, otherwise lines."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.terminal import on_a_terminal

TRACES = Path(__file__).parents[2] / "data" / "cases" / "23_straggler_late_rank" / "traces"


WAITING = """
import sys, time
from types import SimpleNamespace
from rankscope.config import ToolConfig
from rankscope.launcher.ending import Ending
from rankscope.launcher.wrap_up import wrap_up

class Helper:
    pid = 1
    def finish(self, end):
        print("ready", flush=True)
        time.sleep(60)

session = SimpleNamespace(helper=Helper(), run_dir=None, wanted="r", spool=SimpleNamespace(path="s"))
wrap_up(session, Ending(int(sys.argv[1])), ToolConfig(), print)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 1)])
def test_a_signal_after_the_job_ends_at_once_with_torchruns_code(number: signal.Signals, code: int) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITING, str(code)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(100) == code


FINISHING = """
import sys
from pathlib import Path
from types import SimpleNamespace
from rankscope.config import ToolConfig
from rankscope.launcher.report_process import make
from rankscope.launcher.ending import Ending
from rankscope.launcher.wrap_up import wrap_up
from rankscope.records.codec import to_json
from rankscope.records.manifest import RunManifest
from rankscope.records.running.node_task import HelperMessage
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

spool, run_dir = Spool(Path(sys.argv[1])), RunDir(Path(sys.argv[2]))
manifest = RunManifest(run_id="r", argv=[], config={}, versions={}, hosts=[], world_size=2, attempts=1, exit_code=0,
                       windows=[], lives=[])
run_dir.manifest.write_text(to_json(manifest))

class Helper:
    pid = 1
    def __init__(self):
        self.words = []
        self.rank = 0
    def finish(self, end):
        pass
    def next_message(self, patience_s):
        if self.words:
            return self.words.pop(0)
        if self.rank < 2:
            self.rank += 1
            if self.rank == 2:
                spool.trace(0, 0, 0).unlink()
                spool.record(0, 0, 0).unlink()
            return None
        self.words = [HelperMessage(kind="gathered"), HelperMessage(kind="manifest"), HelperMessage(kind="begun")]
        make(run_dir, str(run_dir.path), hta=True, tell=self.words.append)
        self.words.append(HelperMessage(kind="done"))
        return self.words.pop(0)

def say(text):
    print("rankscope: " + text, file=sys.stderr)

session = SimpleNamespace(helper=Helper(), run_dir=run_dir.path, wanted=run_dir.path, spool=spool)
assert wrap_up(session, Ending(0), ToolConfig(), say).report is not None
"""


@pytest.fixture
def finishing(tmp_path: Path) -> list[str]:
    """Two ranks left 3 and 1 MB; the run holds a window of four."""
    spool, run = tmp_path / "spool", tmp_path / "run"
    spool.mkdir()
    for rank, size in enumerate((3_000_000, 1_000_000)):
        (spool / f"window_0_0_{rank}.json").write_text("{}")
        (spool / f"trace_0_0_{rank}.json").write_bytes(b" " * size)
    shutil.copytree(TRACES, run)
    return [sys.executable, "-c", FINISHING, str(spool), str(run)]


@pytest.mark.process
def test_bars_on_a_terminal(finishing: list[str]) -> None:
    text, _, code = on_a_terminal(finishing, "stderr", TERM="xterm", COLUMNS="90")
    assert code == 0
    assert re.search(r"gathering traces .* 0 of 4 MB", text)
    assert re.search(r"gathering traces .* 3 of 4 MB", text)
    assert re.search(r"loading traces .* of \d+ MB", text)
    assert re.search(r"comparing 4 ranks .* 0 of 2", text)
    assert re.search(r"numbers of HolisticTraceAnalysis .* 1 of 2", text)
    assert "rankscope:" not in text, "bars say it all"
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is back"


@pytest.mark.process
@pytest.mark.parametrize("terminal", [False, pytest.param(True, marks=pytest.mark.long)], ids=["piped", "dumb"])
def test_lines_elsewhere(finishing: list[str], terminal: bool) -> None:
    if terminal:
        text, _, code = on_a_terminal(finishing, "stderr", TERM="dumb")
    else:
        done = subprocess.run(finishing, capture_output=True, text=True, timeout=300)
        text, code = done.stderr, done.returncode
    assert code == 0
    assert text.replace("\r\n", "\n").splitlines() == [
        "rankscope: analysing",
        "rankscope: comparing 4 ranks",
        "rankscope: adding the numbers of HolisticTraceAnalysis",
    ]


def test_a_signal_gives_the_cursor_back() -> None:
    leader, follower = pty.openpty()
    env = os.environ | {"TERM": "xterm"}
    words = [sys.executable, "-c", WAITING, "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=follower, text=True, env=env) as process:
        os.close(follower)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(100) == 1
    seen = os.read(leader, 1 << 16)
    os.close(leader)
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")
