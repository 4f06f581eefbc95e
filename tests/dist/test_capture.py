"""Windows, gathering and verdicts of real launches."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from support.launching import JOBS, RANKSCOPE, free_port, must_tell

pytestmark = pytest.mark.forked


def steps_in(path) -> list[int]:
    with gzip.open(path) as stream:
        events = json.load(stream)["traceEvents"]
    names = {e["name"] for e in events if e.get("name", "").startswith("ProfilerStep#")}
    return sorted(int(name.split("#")[1]) for name in names)


def test_all_ranks_record_the_planned_steps(run):
    # skip_first 3, wait 1, warmup 2: steps 6 to 11 by the definition of the schedule
    done = run("train.py", ranks=4)
    assert done.code == 0, done.stderr
    for rank, record in enumerate(done.records()):
        assert (record.rank, record.status, record.agreed) == (rank, "ok", True)
        assert (record.first_step, record.last_step) == (6, 11)
        assert steps_in(done.run.trace(0, 0, rank)) == [6, 7, 8, 9, 10, 11]
        if Path("/proc/self/schedstat").exists():
            assert (record.threads[0].kind, len(record.threads[0].cpu_ms)) == ("training", 6)
            assert min(record.threads[0].cpu_ms) > 0


def test_repeated_windows_are_kept_apart(run):
    # two cycles of wait 1, warmup 1, active 2 after 3 steps: 5 to 6, then 9 to 10
    done = run("train.py", steps="skip_first=3 warmup=1 active=2 repeat=2", report=True)
    assert steps_in(done.run.trace(0, 0, 1)) == [5, 6]
    assert steps_in(done.run.trace(0, 1, 1)) == [9, 10]
    report = done.report
    assert report.ranks[0].steps == 4
    # AND the regions of the script are rows: once in each step of both ranks, one inside the other
    regions = {row.region: row for row in report.regions}
    assert {name: (row.ranks, row.calls_per_step) for name, row in regions.items()} == dict.fromkeys(
        ("loss", "model"), (2, 1.0)
    )
    assert regions["loss"].host_ms > regions["model"].host_ms > 0
    assert report.throughput.tokens_per_s == pytest.approx(16e3 / report.verdict.step_ms, rel=1e-4)


def test_data_loader_workers_are_not_profiled(run):
    done = run("train.py", "--workers", 2)
    assert [r.status for r in done.records()] == ["ok", "ok"]
    assert len(list(done.run.window(0, 0).glob("*.trace.json.gz"))) == 2
    assert all(life.steps_counted == 24 for life in done.manifest.lives)


def test_a_job_shorter_than_the_schedule_is_partial(run):
    done = run("train.py", "--steps", 9)
    assert {(r.status, r.first_step, r.last_step) for r in done.records()} == {("partial", 6, 8)}


def test_a_job_that_ends_before_the_window_gets_a_message(run):
    done = run("train.py", "--steps", 3, report=True)
    assert (done.code, done.manifest.windows) == (0, [])
    (note,) = done.manifest.notes
    assert "after 3 steps" in note
    assert "from step 6" in note
    assert done.report.verdict.kind == "insufficient_data"
    assert "after 3 steps" in done.stderr


def test_without_steps_a_message_explains_why_nothing_was_captured(run):
    done = run("mirror.py", "--light-child", ranks=1)
    (note,) = done.manifest.notes
    assert "no training step was seen" in note
    assert "rankscope.step()" in note


def test_a_second_run_into_the_same_directory_is_refused(run):
    first = run("train.py", "--steps", 4)
    before = first.run.manifest.read_bytes()
    second = run("train.py", "--steps", 4)
    assert second.code == 3
    assert "choose another run.dir" in second.stderr
    assert "loss" not in second.stdout
    assert first.run.manifest.read_bytes() == before


def test_two_nodes_write_one_run(start, finish, tmp_path):
    # GIVEN the same command on two nodes that share a folder
    words = [
        *("--nnodes", 2, "--nproc-per-node", 1, "--rdzv-id", "job7", "--rdzv-backend", "c10d"),
        *("--rdzv-endpoint", f"localhost:{free_port()}", "-S", f"run.dir={tmp_path / 'RUN'}"),
        *("-S", "schedule.skip_first=3", JOBS / "train.py"),
    ]
    nodes = [start([*RANKSCOPE, *words]) for _ in range(2)]
    done = [finish(node) for node in nodes]
    # THEN one manifest holds both, and one of them made the report
    assert [d.code for d in done] == [0, 0], [d.stderr for d in done]
    manifest = done[0].manifest
    assert (manifest.run_id, manifest.world_size) == ("job7", 2)
    assert [r.status for r in done[0].records()] == ["ok", "ok"]
    assert sum("Report:" in d.stderr for d in done) == 1


@pytest.mark.parametrize("flags", [["--nnodes", 2], ["--nnodes", 2, "--rdzv-id", "x"]])
def test_several_nodes_need_an_id_and_a_shared_directory(start, finish, flags):
    done = finish(start([*RANKSCOPE, *flags, JOBS / "train.py"]))
    assert done.code == 2
    assert re.search(r"--rdzv-id|run\.dir", done.stderr)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("job", "ranks", "late", "cause"),
    [
        (["--bad-rank", 1, "--input-ms", 50, "--fsdp"], 2, 1, "input_stall"),
        (["--bad-rank", 3, "--pause-ms", 40], 4, 3, "host_pause"),
    ],
    ids=["fsdp2-input", "ddp-pause"],
)
def test_the_planted_slow_rank_is_named(run, job, ranks, late, cause):
    done = run("train.py", *job, ranks=ranks, report=True)
    must_tell(done.report, "straggler", [late], cause)
    assert f"rank {late}" in done.stderr.split("Verdict")[1].splitlines()[0].lower()


@pytest.mark.alone
# DDP without a fault: tests/dist/test_faults.py.
@pytest.mark.parametrize(
    ("job", "ranks"), [pytest.param([], 2, id="ddp", marks=pytest.mark.long), pytest.param(["--fsdp"], 2, id="fsdp2")]
)
def test_a_balanced_job_is_called_so(run, job, ranks):
    done = run("train.py", *job, ranks=ranks, report=True)
    assert done.report.verdict.ranks == []
    assert done.report.verdict.kind in ("balanced", "comm_bound", "host_bound", "contended")  # whatever else runs here


def test_the_report_is_three_files_and_a_summary(run):
    done = run("train.py", "--bad-rank", 1, "--input-ms", 50, report=True, hta=True)
    assert {p.name for p in done.run.report.iterdir()} >= {"report.json", "report.html", "report.md"}
    summary = done.stderr[done.stderr.index("Verdict") :]
    assert summary.index("Verdict") < summary.index("Why") < summary.index("Next")
    assert len(summary.splitlines()) <= 42  # 40 of the summary, a blank line, and where the report is
