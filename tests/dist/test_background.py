"""Windows by libkineto's own threads, and what must not happen to a job that has them."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
from pathlib import Path

import pytest

from support.launching import JOBS, RANKSCOPE

KINETO = ["-S", "capture.backend=kineto"]


@pytest.fixture
def steady(start, finish, tmp_path):
    """A job that trains until a record, by default rank 1's of window 0, is there."""

    def steady(*job_args, flags=(), until=(0, 1)):
        run = tmp_path / "RUN"
        until = run / "attempt_0" / f"window_{until[0]:03d}" / f"rank_{until[1]:05d}.json"
        ours = ["-S", f"run.dir={run}", "-S", "schedule.skip_first=3", "-S", "analysis.enabled=false", *KINETO, *flags]
        job = [JOBS / "steady.py", "--until", until, *job_args]
        return finish(start([*RANKSCOPE, "--nproc-per-node", 2, *ours, *job]))

    return steady


def test_libkineto_records_the_same_steps_on_all_ranks(steady):
    done = steady("--fork")
    assert done.code == 0, done.stderr
    first, second = done.records()
    assert (first.first_step, first.last_step) == (second.first_step, second.last_step)
    assert first.last_step - first.first_step == 5
    for record in (first, second):
        assert (record.status, record.capture, record.agreed) == ("ok", "kineto", True)
        trace = json.loads(gzip.decompress(done.run.trace(0, 0, record.rank).read_bytes()))
        marks = sorted({e["name"] for e in trace["traceEvents"] if e.get("name", "").startswith("ProfilerStep#")})
        assert marks == sorted(f"ProfilerStep#{step}" for step in range(record.first_step, record.last_step + 1))
        assert trace["rankscope"]["rank"] == record.rank
        assert (trace["distributedInfo"]["rank"], trace["distributedInfo"]["world_size"]) == (record.rank, 2)
    pulse = done.run.pulse(0, 1)
    assert len(gzip.decompress(pulse.read_bytes())) == 16 * done.manifest.lives[1].steps_counted


@pytest.mark.parametrize("phase", ["ask_*", "kineto_0_*.tmp"], ids=["before", "inside"])
def test_the_scripts_own_profiler_and_libkineto_do_not_meet(steady, phase):
    done = steady("--profile-while", phase)
    assert done.code == 0, done.stderr
    assert done.stdout.count("own profiler saw") == 2
    for record in done.records():
        assert record.status == "ok" or "own torch.profiler" in record.reason


def test_the_scripts_own_profiler_records_for_as_long_as_it_likes(steady):
    # GIVEN a loop of libkineto's that would end a session like its own after 6.5 s, as up to torch 2.12
    twice = ["-S", "schedule.repeat=2"]
    done = steady("--profile-while", "window_0_0_0.json", "--profile-s", 8, until=(1, 1), flags=twice)
    assert done.code == 0, done.stderr
    assert done.stdout.count("own profiler saw") == 2


def test_a_job_that_ends_inside_a_window_ends_as_it_would_have(steady):
    done = steady("--end-while", "kineto_0_*.tmp")
    assert done.code == 1
    assert "exitcode  : 5" in done.stderr  # of the script, in torchrun's words
    for record in done.records():
        assert record.status in ("missing", "partial")
        assert "the job ended" in record.reason


def test_a_job_terminated_while_libkineto_writes_leaves_its_traces(steady):
    done = steady("--end-while", "window_0_0_*.json", "--by-signal")
    assert done.code == 1
    assert "Signal 15 (SIGTERM)" in done.stderr  # of the script, in torchrun's words
    assert [(r.status, r.capture, r.trace is not None) for r in done.records()] == [("ok", "kineto", True)] * 2


def test_another_daemon_is_left_alone(run):
    done = run("train.py", flags=KINETO, extra_env={"KINETO_USE_DAEMON": "1", "KINETO_DAEMON_INIT_DELAY_S": "60"})
    assert done.code == 0, done.stderr
    assert [(r.status, r.capture) for r in done.records()] == [("ok", "inline")] * 2
    assert "KINETO_USE_DAEMON" in done.records()[0].capture_reason


def test_ranks_that_do_not_record_hold_nobody_up(steady):
    chosen = ["-S", "capture.ranks=0", "-S", "schedule.every=20", "-S", "budget.step_pct=100"]
    done = steady(flags=chosen, until=(1, 0))
    assert done.code == 0, done.stderr
    for window in (0, 1):
        records = done.records(window=window)
        assert [(r.status, r.capture) for r in records] == [("ok", "kineto"), ("skipped", "kineto")]


@pytest.fixture
def linked(start, finish):
    """A process with libkineto's windows and nothing else: the lines it printed, and the folder of its traces."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short

        def linked(*words):
            done = finish(start([sys.executable, JOBS / "linked.py", folder, *words]))
            assert done.code == 0, done.stderr
            return done.stdout.splitlines(), Path(folder)

        yield linked


def test_an_answer_that_libkineto_gets_too_late_costs_one_window(linked):
    (first, *written), folder = linked("--windows", 2, "--late")
    assert first.startswith("failed libkineto did not begin")
    names = [line.split()[1] for line in written]
    assert len(set(names)) == 2
    for step, name in enumerate(names):
        trace = json.loads((folder / name).read_bytes())
        assert any(event.get("name") == f"ProfilerStep#{step}" for event in trace["traceEvents"])


def test_libkineto_sleeps_through_the_warm_up_of_a_window_that_was_long_in_coming(linked):
    # GIVEN 16 s from request to window (its loop's own limit is 15 s), and a warm-up in which the loop wakes twice
    (line,), _ = linked("--hold-s", 16, "--warm-up-s", 2.5)
    assert float(re.search(r"took (\S+) s of CPU", line)[1]) < 0.5
