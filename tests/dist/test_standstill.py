"""Jobs that stand still: which rank is named during the standstill and in the report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.between.stuck_files import read_answers
from rankscope.rundir.layout import RunDir
from support.launching import JOBS, LIMIT_S, RANKSCOPE, flags_of

pytestmark = pytest.mark.forked

WHY_STUCK = [sys.executable, "-m", "rankscope", "why-stuck"]
EXPECTED = {
    "skip": ("kinds", [1], "rank 1 calls broadcast of [3] and rank 0 calls all_reduce of [1]"),
    "order": ("kinds", [1], "rank 1 calls broadcast of [3] and rank 0 calls all_reduce of [1]"),
    "asleep": ("not_entered", [1], "in fetch_a_batch"),
    "stopped": ("stopped", [1], "stopped by a signal"),
    "long": ("long", [1], "in evaluate"),
    "late": ("not_entered", [1], "has not called init_process_group"),
    "unmet": ("not_entered", [1], "in load_a_model"),
}


@pytest.mark.parametrize(
    "fault", [name if name == "skip" else pytest.param(name, marks=pytest.mark.long) for name in EXPECTED]
)
def test_the_rank_that_causes_a_standstill_is_named(start, finish, tmp_path, fault):
    kind, ranks, words = EXPECTED[fault]
    run, over = RunDir(tmp_path / "RUN"), tmp_path / "over"
    settings = ["schedule.skip_first=1000000", "analysis.enabled=false", "hang.after_s=2", f"run.dir={run.path}"]
    job = [JOBS / "stuck.py", fault, "--until", over]
    running = start([*RANKSCOPE, "--nproc-per-node", 2, *flags_of(*settings), *job])
    deadline = time.monotonic() + LIMIT_S
    while not (found := read_answers(run)) and time.monotonic() < deadline:
        assert running.poll() is None
        time.sleep(0.1)
    said = subprocess.run([*WHY_STUCK, run.path], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert words in said.stdout
    (node,) = found
    assert not node.asked
    for state in node.ranks:  # nothing that was done about it has ended or continued a rank
        assert Path(f"/proc/{state.pid}").exists()
    over.touch()
    if fault != "long":  # the job ends as jobs do that stand still: somebody kills it
        for state in node.ranks:
            os.kill(state.pid, signal.SIGKILL)
    done = finish(running)
    assert done.code == (0 if fault == "long" else 1)
    hang = done.manifest.hang
    assert (hang.kind, hang.ranks) == (kind, ranks), hang
    assert hang.resumed == (fault == "long")
