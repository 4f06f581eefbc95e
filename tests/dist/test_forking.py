"""A launch whose processes are forked (support.forking) cannot be distinguished by the launched scripts."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.ending import end, holders, runs, told
from support.forking.client import Forked
from support.launching import LIMIT_S, RANKSCOPE, TORCHRUN, environment, flags_of
from support.node import until

SEES = """
import json, os, signal, sys, threading
def seen():
    own = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "MASTER_PORT", "KINETO_ONDEMAND_TRACE_DIR")
    return {
        "argv": sys.argv, "name": __name__, "file": __file__, "path": sys.path,
        "main": sys.modules["__main__"].__file__,
        "environment": {k: v for k, v in os.environ.items() if k not in own},
        "folder": os.getcwd(), "session": os.getsid(0) == os.getpid(),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(), "signals": [str(signal.getsignal(n)) for n in (2, 15)],
        "torch": "torch" in sys.modules, "hooks": len([f for f in sys.meta_path if "rankscope" in type(f).__module__]),
    }
print(json.dumps(seen()), flush=True)
import torch
print(json.dumps([torch.__spec__.name, torch.nn.__name__, "rankscope.agent.session" in sys.modules]), flush=True)
sys.stderr.write("words")
def fails():
    raise ValueError("planted")
fails()
"""


# rankscope run calls torchrun, which starts the ranks
@pytest.mark.parametrize("launcher", [pytest.param("torchrun", marks=pytest.mark.long), "rankscope"])
def test_a_forked_script_sees_and_does_the_same(tmp_path: Path, fork_server: str, launcher: str) -> None:
    script = tmp_path / "sees.py"
    script.write_text(SEES)
    said = []
    for number in (0, 1):
        settings = flags_of(f"run.dir={tmp_path / str(number)}", "analysis.enabled=false")
        words = TORCHRUN if launcher == "torchrun" else [*RANKSCOPE, *settings]
        command = [*words, "--nproc-per-node", "1", "-r", "3", "--log-dir", f"logs{number}", str(script), "--lr", "1"]
        more = {"cwd": tmp_path, "env": environment(), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = (
            Forked(command, server=fork_server, **more) if number else subprocess.Popen(command, text=True, **more)
        )
        process.communicate(timeout=LIMIT_S)
        (out,), (err,) = ((tmp_path / f"logs{number}").glob(f"**/0/{name}.log") for name in ("stdout", "stderr"))
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        said.append((process.returncode, *lines, err.read_text()))
    assert said[0] == said[1]
    code, seen, loaded, _ = said[0]
    assert (code, seen["torch"], seen["hooks"]) == (1, False, int(launcher == "rankscope"))
    assert loaded == ["torch", "torch.nn", launcher == "rankscope"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("raise SystemExit(7)", 7), ("raise SystemExit('why')", 1), ("1 / 0", 1), ("pass", 0),
     ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9)],
)  # fmt: skip
def test_codes(tmp_path: Path, fork_server: str, text: str, code: int) -> None:
    script = tmp_path / "ends.py"
    script.write_text(f"import atexit\natexit.register(print, 'at exit')\nprint('out')\n{text}\n")
    process = Forked(
        [sys.executable, "-u", str(script)], server=fork_server, env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.wait(), out) == (code, "out\nat exit\n" if code >= 0 else "out\n")
    assert ("why" in err, "ZeroDivisionError" in err, "forking" in err) == ("why" in text, "/ 0" in text, False)


def test_a_hanging_launch_is_killed_with_all_its_processes(tmp_path: Path, fork_server: str) -> None:
    # GIVEN a process whose child has its pipes and never ends, as a rank whose launcher was killed
    script = tmp_path / "leaves.py"
    script.write_text("import os, time\nprint(os.fork(), flush=True)\ntime.sleep(1000)\n")
    process = Forked(
        [sys.executable, "-u", str(script)], server=fork_server, env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    # WHEN a thread reads from a pipe, which lets nobody close it
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.1)
    pipes = [process.stdout, process.stderr]
    until(lambda: len(holders(pipes)) == 2)
    both = holders(pipes)
    assert process.pid in both
    assert f"process {process.pid}, child of" in told(both)
    end(process)
    # THEN nobody is left
    assert process.returncode == -9
    assert all(pipe.closed for pipe in pipes)
    until(lambda: not any(runs(pid) for pid in both))


def test_half_a_request_leaves_the_server_at_work(tmp_path: Path, fork_server: str) -> None:
    for said in (b"", b"\0\0", (100).to_bytes(8, "big") + b"half"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(fork_server)
            client.sendall(said)
    script = tmp_path / "ends.py"
    script.write_text("raise SystemExit(7)")
    process = Forked([sys.executable, "-u", str(script)], server=fork_server, env=environment())
    assert process.wait(LIMIT_S) == 7
