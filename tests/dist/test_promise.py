"""The promise: result, exit code and lifetime of the job are the same as under torchrun."""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import Any

import pytest

from support.launching import JOBS, RANKSCOPE, TORCHRUN


def loss(text: str) -> str:
    return re.search(r"^loss (\S+)$", text, re.M)[1]


def own_words(logs) -> list[str]:
    """What rank 1 wrote to stderr, without our own lines and gloo's last words, which torchrun shows at times too."""
    (path,) = logs.glob("**/1/stderr.log")
    passed_over = ("rankscope:", "terminate called without an active exception")
    return [line for line in path.read_text().splitlines() if not line.startswith(passed_over)]


@pytest.mark.forked
def test_same_loss_to_the_last_bit(run, torchrun):
    ours, theirs = run("train.py"), torchrun("train.py")
    assert (ours.code, loss(ours.stdout)) == (0, loss(theirs.stdout))
    assert [r.status for r in ours.records()] == ["ok", "ok"]
    # AND what the script said of itself is in run.json: twice the same on both ranks
    marks = [(mark.step, mark.name, mark.rank, mark.ranks, mark.values) for mark in ours.manifest.marks]
    assert marks == [(1, "checkpoint", 0, 2, {"gib": 0.5}), (8, "checkpoint", 0, 2, {"gib": 4.0})]
    assert [life.described for life in ours.manifest.lives] == [{"tokens": 16.0}] * 2


def mirrored(stdout: str) -> list[dict[str, Any]]:
    """What each rank of mirror.py printed. Two ranks write to one pipe, so their texts may share a line."""
    found, at = [], 0
    while (at := stdout.find("mirror {", at)) >= 0:
        seen, at = json.JSONDecoder().raw_decode(stdout, at + len("mirror "))
        found.append(seen)
    return found


@pytest.mark.parametrize("between", ["\n", ""])
def test_output_of_two_ranks_is_distinguished(between):
    ranks = [{"argv": ["mirror {x}"]}, {"argv": ["b"]}]
    assert mirrored(between.join(f"mirror {json.dumps(rank)}" for rank in ranks) + "\n\n") == ranks


@pytest.mark.forked_launcher
@pytest.mark.parametrize("flags", [[], ["-m"], ["--no-python"]], ids=["script", "module", "no-python"])
def test_a_script_sees_what_it_would_see_under_torchrun(start, finish, tmp_path, flags):
    # GIVEN arguments torchrun itself would reject behind a script, and ones that look like ours or Hydra's
    arguments = ["--", "--start=5", "-S", "a=b", "--config-dir", "x", "lr=0.1", *(["--light-child"] if flags else [])]
    command = {"": [JOBS / "mirror.py"], "-m": ["mirror"], "--no-python": [sys.executable, JOBS / "mirror.py"]}
    if flags == ["-m"]:
        (tmp_path / "mirror.py").write_bytes((JOBS / "mirror.py").read_bytes())
    words = [*flags, *command["".join(flags)], *arguments]
    # WHEN it is started both ways
    ours = finish(start([*RANKSCOPE, "--nproc-per-node", 1, "-S", f"run.dir={tmp_path / 'RUN'}", *words]))
    theirs = finish(start([*TORCHRUN, "--nproc-per-node", 1, *words]))
    # THEN it can tell no difference
    assert len(mirrored(ours.stdout)) == 1
    assert mirrored(ours.stdout) == mirrored(theirs.stdout)
    assert (ours.code, theirs.code) == (0, 0)


@pytest.mark.forked
def test_arguments_that_torchrun_would_call_ambiguous(run):
    done = run("mirror.py", "--start", "5", "--light-child")
    assert [seen["argv"][1:] for seen in mirrored(done.stdout)] == [["--start", "5", "--light-child"]] * 2


@pytest.mark.forked_launcher
def test_an_exception_keeps_its_traceback_and_code_and_leaves_what_was_recorded(run, torchrun, tmp_path):
    # GIVEN a failure of rank 1 inside the window (steps 6 to 11), each rank's stderr in a file of its own
    job = ("train.py", "--bad-rank", 1, "--raise-at", 8)
    ours = run(*job, flags=["-r", 2, "--log-dir", tmp_path / "ours"])
    theirs = torchrun(*job, flags=["-r", 2, "--log-dir", tmp_path / "theirs"])
    assert ours.code == theirs.code == 1
    assert own_words(tmp_path / "ours") == own_words(tmp_path / "theirs")
    assert "RuntimeError: planted failure" in own_words(tmp_path / "ours")[-1]
    failed = ours.records()[1]
    assert (failed.status, failed.first_step, failed.last_step) == ("partial", 6, 7)
    assert "planted failure" in failed.reason
    assert failed.trace is not None
    assert ours.manifest.exit_code == 1


@pytest.mark.forked
def test_exit_codes_are_torchruns(run, torchrun):
    assert run("train.py", "--exit-code", 3).code == torchrun("train.py", "--exit-code", 3).code == 1


@pytest.mark.forked
def test_kill_9_of_a_rank_is_named(run):
    done = run("train.py", "--bad-rank", 1, "--kill-at", 8, report=True)
    assert done.code == 1
    killed = done.records()[1]
    assert (killed.status, killed.trace) == ("missing", None)
    assert "killed" in killed.reason
    assert [rank.status for rank in done.report.ranks][1] == "missing"


@pytest.mark.forked
def test_sigterm_inside_the_window_leaves_what_was_recorded(start, finish, tmp_path):
    # GIVEN a job that rests inside its window
    words = ["-S", f"run.dir={tmp_path / 'RUN'}", "-S", "schedule.skip_first=3"]
    process = start([*RANKSCOPE, "--nproc-per-node", 2, *words, JOBS / "train.py", "--wait-for-signal-at", 8])
    while "waiting" not in process.stdout.readline():
        assert process.poll() is None
    # WHEN the launcher is terminated, as a scheduler would
    process.send_signal(signal.SIGTERM)
    done = finish(process)
    # THEN it ends as torchrun does, in that very step, and the traces so far are there
    assert done.code == 1
    assert {(r.status, r.reason, r.last_step) for r in done.records()} == {("partial", "terminated by SIGTERM", 7)}
    assert all(r.trace for r in done.records())


@pytest.mark.forked
def test_elastic_restart_keeps_both_attempts(run):
    flags = ["--max-restarts", 1]
    done = run("train.py", "--bad-rank", 1, "--raise-at", 8, "--first-attempt-only", flags=flags)
    assert done.code == 0, done.stderr
    assert done.manifest.attempts == 2
    assert [r.status for r in done.records(attempt=1)] == ["ok", "ok"]
    assert done.records(attempt=0)[1].status == "partial"
    assert done.run.trace(1, 0, 0).exists()


@pytest.mark.forked
def test_the_scripts_own_profiler_is_not_disturbed(run, torchrun):
    # GIVEN a script that profiles steps 7 to 9, in the middle of our window of steps 6 to 11
    job = ("train.py", "--own-profiler-at", 7)
    ours, theirs = run(*job), torchrun(*job)
    assert ours.code == 0
    own = re.findall(r"own profile: (\d+) events", ours.stdout)
    assert own == re.findall(r"own profile: (\d+) events", theirs.stdout)
    for record in ours.records():
        assert record.status == "partial"
        assert "own torch.profiler" in record.reason
    assert loss(ours.stdout) == loss(theirs.stdout)


@pytest.mark.forked
def test_the_scripts_own_profiler_during_our_warm_up(run):
    # GIVEN a profiler of the user in step 4, where our warm-up (steps 4 and 5) has just begun
    done = run("train.py", "--own-profiler-at", 4)
    assert done.code == 0, done.stderr
    assert {r.status for r in done.records()} == {"missing"}
    assert all("own torch.profiler" in r.reason for r in done.records())


@pytest.mark.forked
def test_a_script_with_its_own_hydra(run):
    done = run("hydra_app.py", "+lr=0.1", ranks=1)
    assert (done.code, "hydra says 0.1" in done.stdout) == (0, True)


@pytest.mark.forked
def test_an_error_of_rankscope_is_reported_and_the_job_continues(run, torchrun, tmp_path):
    # GIVEN a torch.profiler that cannot start
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import torch.autograd.profiler as p\n"
        "def fail(*a, **k): raise RuntimeError('planted: CUPTI is busy')\n"
        "p.profile._prepare_trace = fail\n"
    )
    done = run("train.py", extra_env={"PYTHONPATH": str(broken)})
    assert (done.code, loss(done.stdout)) == (0, loss(torchrun("train.py").stdout))
    assert all("planted: CUPTI is busy" in r.reason for r in done.records())
