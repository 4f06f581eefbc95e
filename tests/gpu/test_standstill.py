"""Jobs with NCCL that stand still: which rank is named during and after. One GPU is enough."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rankscope.rundir.layout import RunDir
from rankscope.stuck.files import read_answers
from rankscope.stuck.verdict import why_stuck
from support.launching import LIMIT_S, RANKSCOPE, flags_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

JOB = Path(__file__).parent / "jobs" / "stuck_nccl.py"
EXPECTED = {
    "skip": ("not_entered", "all_reduce"),
    "order": ("not_entered", "all_reduce"),
    "sizes": ("sizes", "all_reduce"),
    "asleep": ("not_entered", "in fetch_a_batch"),
    "stopped": ("stopped", "stopped by a signal"),
}
"""What is found, and words of the sentence. Rank 1 is to blame in all of them."""


def _stands_still(nodes) -> bool:
    """Whether ranks were asked that make no more steps; while NCCL connects ten of them, they may be asked before."""
    verdict = why_stuck(nodes)
    return verdict is not None and verdict.stepped and verdict.kind != "long"


def test_the_rank_that_causes_a_standstill_is_named(start, finish, tmp_path):
    jobs = {}
    for fault in EXPECTED:  # all at once: each only waits
        settings = ["schedule.skip_first=1000000", "analysis.enabled=false", "hang.after_s=3", "live.mode=off"]
        settings.append(f"run.dir={tmp_path / fault}")
        words = [*RANKSCOPE, "--standalone", "--nproc-per-node", 2, *flags_of(*settings)]
        jobs[fault] = start([*words, JOB, fault, "--until", tmp_path / "over"])
    told, wrong, deadline = {}, [], time.monotonic() + LIMIT_S / 4
    for fault, running in jobs.items():
        run = RunDir(tmp_path / fault)
        while not _stands_still(found := read_answers(run)) and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        why = subprocess.run(
            [sys.executable, "-m", "rankscope", "why-stuck", run.path], capture_output=True, text=True, timeout=LIMIT_S
        )
        told[fault] = why.stdout + why.stderr
        print(f"---- {fault}\n{told[fault]}")
        for node in found:
            for state in node.ranks:
                os.kill(state.pid, signal.SIGKILL)
    (tmp_path / "over").touch()
    for fault, running in jobs.items():
        kind, words = EXPECTED[fault]
        if not read_answers(RunDir(tmp_path / fault)):
            running.kill()
            wrong.append((fault, "nobody was asked", running.communicate(timeout=LIMIT_S)))
            continue
        done = finish(running, tmp_path / fault)
        hang = done.manifest.hang
        if (hang.kind, hang.ranks) != (kind, [1]) or words not in told[fault]:
            wrong.append((fault, hang, done.stderr[-2000:]))
    assert not wrong
