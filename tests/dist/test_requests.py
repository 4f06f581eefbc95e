"""Windows beyond the plan (requested, periodic, after a slow step), and windows of some ranks only."""

from __future__ import annotations

import sys
import time

import pytest

from rankscope.between.step_logs import read_step_log
from rankscope.records.codec import from_json
from rankscope.records.rank import RankRecord
from rankscope.rundir.layout import RunDir
from rankscope.statistics.step_time import usual_step_ms
from support.launching import JOBS, LIMIT_S, RANKSCOPE, flags_of, free_port

pytestmark = pytest.mark.forked

CAPTURE = [sys.executable, "-m", "rankscope", "capture"]
NEVER = ["-S", "schedule.skip_first=1000000", "-S", "analysis.enabled=false"]


def wait_for(path, process):
    """Until a file is there; the job must go on meanwhile."""
    while not list(path.parent.glob(path.name)):
        assert process.poll() is None
        time.sleep(0.02)


def same_steps(run: RunDir, window: int) -> tuple[int, int]:
    records = [from_json(RankRecord, path.read_bytes()) for path in sorted(run.window(0, window).glob("rank_*.json"))]
    (steps,) = {(r.first_step, r.last_step) for r in records}
    assert all(r.trace is not None and r.agreed for r in records)
    return steps


def test_a_running_job_is_asked_for_windows(start, finish, tmp_path):
    # GIVEN four ranks, one of them slow, and no planned window
    run, stop = RunDir(tmp_path / "RUN"), tmp_path / "stop"
    job = [JOBS / "steady.py", "--until", stop, "--slow-rank", 2]
    running = start([*RANKSCOPE, "--nproc-per-node", 4, "-S", f"run.dir={run.path}", *NEVER, *job])
    wait_for(run.nodes / "*.claim.json", running)
    # WHEN it is asked three times
    for number, flags in enumerate((["--steps", 3], ["--detail", "stacks"], ["--steps", 2, "--warmup", 1])):
        asked = start([*CAPTURE, run.path, *flags])
        out, err = asked.communicate(timeout=LIMIT_S)
        # THEN each is answered by all ranks with the same steps
        assert asked.returncode == 0, err
        assert f"window_{number:03d}" in out
        assert "4 of 4 ranks" in out
        first, last = same_steps(run, number)
        assert last - first + 1 == (3, 5, 2)[number]
    stop.touch()
    done = finish(running)
    assert done.code == 0, done.stderr
    assert [r.origin for r in done.records(window=1)] == ["request_0001"] * 4
    # AND a job that has ended cannot be asked
    late = start([*CAPTURE, run.path])
    assert late.wait(timeout=LIMIT_S) == 3


def test_two_nodes_answer_one_request(start, finish, tmp_path):
    run, stop = RunDir(tmp_path / "RUN"), tmp_path / "stop"
    words = [
        *("--nnodes", 2, "--nproc-per-node", 1, "--rdzv-id", "job7", "--rdzv-backend", "c10d"),
        *("--rdzv-endpoint", f"localhost:{free_port()}", "-S", f"run.dir={run.path}", *NEVER),
        *(JOBS / "steady.py", "--until", stop, "--capture-when", tmp_path / "spike"),
    ]
    nodes = [start([*RANKSCOPE, *words]) for _ in range(2)]
    for node in nodes:
        wait_for(run.nodes / "*.claim.json", node)
    asked = start([*CAPTURE, run.path, "--steps", 2])
    out, err = asked.communicate(timeout=LIMIT_S)
    assert (asked.returncode, "2 of 2 ranks" in out) == (0, True), (out, err)
    first, last = same_steps(run, 0)
    assert last - first == 1
    # AND the script of the rank on the other node asks for one itself
    (tmp_path / "spike").touch()
    for rank in range(2):
        wait_for(run.window(0, 1) / f"rank_{rank:05d}.json", nodes[0])
    first, last = same_steps(run, 1)
    assert last - first == 2
    stop.touch()
    done = [finish(node) for node in nodes]
    assert [node.code for node in done] == [0, 0]
    assert [record.origin for record in done[0].records(window=1)] == ["script", "script"]
    assert any("asked for by rankscope.capture" in note and "(loss spike)" in note for note in done[0].manifest.notes)


def test_only_chosen_ranks_record_and_no_rank_is_missing(run):
    done = run("train.py", flags=["-S", "capture.ranks=1"])
    skipped, recorded = done.records()
    assert (skipped.status, skipped.trace) == ("skipped", None)
    assert (recorded.status, recorded.first_step) == ("ok", 6)
    assert "missing" not in done.stderr


@pytest.mark.parametrize("ranks", [pytest.param("2", marks=pytest.mark.long), "first-of-node"])
def test_the_last_step_of_windows_every_so_often_is_within_the_budget(run, ranks):
    # warm-up 1 and 2 recorded steps every 20: 3 of at least 100 steps are within 5 %, the fourth window is beyond two
    flags = ["-S", "schedule.every=20", "-S", "budget.windows=2", "-S", "analysis.enabled=false"]
    done = run(
        "train.py", "--steps", 400, flags=[*flags, "-S", f"capture.ranks={ranks}"],
        steps="skip_first=3 warmup=1 active=2",
    )  # fmt: skip
    assert len(done.manifest.windows) == 2
    for window in done.manifest.windows:
        assert len({(r.first_step) for r in window.records if r.trace}) <= 1


def test_a_slow_step_is_recorded_and_a_step_that_is_waited_in_is_none(start, finish, tmp_path):
    # GIVEN usual steps of 11 ms, of which the host spends 50 in each fifth, and one step of 1.5 s
    settings = ["budget.slow_step=20", "schedule.active=2", "capture.backend=inline", f"run.dir={tmp_path / 'RUN'}"]
    running = start([*RANKSCOPE, *NEVER, *flags_of(*settings), JOBS / "beat.py"])
    done = finish(running)
    (record,) = done.records()
    assert (record.status, record.origin) == ("ok", "slow_step")
    # THEN a step before the window was slow: that one, or, where the machine holds up so many that no interval shows in
    # them, one that was so many times as long as the usual ones
    before = read_step_log(done.run.step_log(0, 0)).column("step")[: record.first_step]
    assert max(before) > 15 * usual_step_ms(list(before))
