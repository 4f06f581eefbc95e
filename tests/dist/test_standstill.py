"""Jobs that stand still: which rank is named during the standstill and in the report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.rundir.layout import RunDir
from rankscope.stuck.files import read_answers
from support.launching import JOBS, LIMIT_S, RANKSCOPE, flags_of, free_port

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


OF_MANY_KINDS = {  # three ranks each
    "barrier": ("kinds", [1], "rank 1 calls barrier and ranks 0, 2 calls all_reduce of [32]"),
    "roots": ("kinds", [0, 1], "rank 1 calls broadcast of [32] with rank 1 as its root"),
    "subgroup": ("order", [0, 1], "rank 0 waits for rank 1 in all_reduce number 1"),
    "receives": ("order", [0, 1], "rank 1 waits to receive from rank 0"),
    "sends": ("order", [0, 1], "rank 1 waits to send to rank 0"),
    "half_a_batch": ("order", [0, 1], "rank 0 waits to receive from rank 1"),
    "half_an_exchange": ("order", [], "Rank 0 waits for a message whose other end is not known"),
    "makes_no_group": ("kinds", [1], "ranks 0, 2 calls new_group"),
    "monitored": ("not_entered", [1], "has not entered monitored_barrier"),
    "ends_early": ("kinds", [1], "rank 1 calls barrier"),
    "lock": ("not_entered", [1], "in lock"),
    "pipe": ("not_entered", [1], "in pipe, writing to a full pipe"),
    "asks": ("not_entered", [1], "in asks, reading from a pipe"),
    "keeps_pythons_lock": ("not_entered", [1], "does not answer and waits in native code that keeps Python's lock"),
    "saves": ("not_entered", [0], "opening a FIFO"),
    "two": ("not_entered", [0, 2], "in sleep, asleep"),
    "worker": ("not_entered", [1], "in worker"),
    "stage": ("not_entered", [1], "rank 0 waits to send to rank 1, rank 2 waits to receive from rank 1"),
    "no_message": ("order", [0, 1], "rank 0 waits to receive from rank 1; rank 1 waits to receive from rank 0"),
    "evaluates": ("long", [0], "in evaluates"),
    "compiles": ("long", [0], "while its other threads or processes that it started work"),
    "has_a_thread": ("long", [0], "while its other threads or processes that it started work"),
    "matches": ("long", [0], "computes in native code that keeps Python's lock"),
}
"""Kind, ranks, and words of the sentence. Rank 1 is to blame unless :mod:`jobs.standing` says otherwise; where nothing
shows which of two ranks is wrong, both are named."""


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, len(OF_MANY_KINDS), 3))
def test_standstills_of_many_kinds(start, finish, tmp_path, first):
    jobs = {}
    for fault in list(OF_MANY_KINDS)[first : first + 3]:  # at once: each only waits
        settings = ["schedule.skip_first=1000000", "analysis.enabled=false", "hang.after_s=2"]
        words = [*RANKSCOPE, "--master-port", free_port(), "--nproc-per-node", 3, *flags_of(*settings)]
        job = [*words, *flags_of(f"run.dir={tmp_path / fault}"), JOBS / "standing.py", fault]
        jobs[fault] = start(job)
    told, deadline = {}, time.monotonic() + LIMIT_S
    for fault, running in jobs.items():
        while not (found := read_answers(RunDir(tmp_path / fault))) and time.monotonic() < deadline:
            assert running.poll() is None
            time.sleep(0.1)
        for node in found:
            for state in node.ranks:
                os.kill(state.pid, signal.SIGKILL)
        hang = finish(running, tmp_path / fault).manifest.hang
        told[fault] = hang.kind, hang.ranks, hang.sentence
    for fault, (kind, ranks, words) in OF_MANY_KINDS.items():
        if fault in told:
            assert told[fault][:2] == (kind, ranks), told[fault]
            assert words in told[fault][2]
