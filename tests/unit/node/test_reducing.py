"""If only columns are kept: one object per node and window, with the same report as from the traces."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope import own_process
from rankscope.analysis.pipeline import analyze
from rankscope.node.gathering import reducing as module
from rankscope.node.gathering.disk_limits import DiskLimits
from rankscope.node.gathering.gather import Gatherer
from rankscope.node.gathering.placing import Placing
from rankscope.node.gathering.reducing import Reducing
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.report.formats import json as contract
from rankscope.rundir.layout import RunDir
from rankscope.rundir.runs import RECORDED
from rankscope.rundir.spool import Spool
from rankscope.trace.files.load import load_traces

pytestmark = pytest.mark.data

RECORDED_JOB = Path(__file__).parents[2] / "data" / "traces" / "gloo_ddp_input"


def announce(spool: Spool, rank: int, text: bytes) -> None:
    spool.trace(0, 0, rank).write_bytes(text)
    known = {"rank": rank, "local_rank": rank, "world_size": 2, "host": "h", "pid": 1, "attempt": 0}
    spool.process_record(0, rank).write_text(to_json(RankRecord(**known)))
    record = RankRecord(**known, window=0, trace=spool.trace(0, 0, rank).name)
    spool.record(0, 0, rank).write_text(to_json(record))


def texts() -> list[bytes]:
    return [gzip.decompress((RECORDED_JOB / f"rank_{rank}.json.gz").read_bytes()) for rank in (0, 1)]


class Job:
    """A node's spool and the run directory of its job."""

    def __init__(self, folder: Path, limits: DiskLimits | None = None) -> None:
        self.spool, self.run = Spool(folder / "spool"), RunDir(folder / "run")
        self.spool.path.mkdir()
        self.notes: list[str] = []
        placing = Placing(self.run)
        self.reducing = Reducing(self.spool, self.run, "node7", placing, limits, self.notes.append)
        self.gatherer = Gatherer(self.spool, self.run, placing=placing, reducing=self.reducing, limits=limits)

    def gather(self, *, last: bool) -> list[RankRecord]:
        """All that can be taken, however long the process takes."""
        found = self.gatherer.gather(last=last)
        while (running := self.reducing._running) is not None:
            running.process.wait()
            found += self.gatherer.gather(last=last)
        return found


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Two ranks, reduced by a real process once both are there."""
    job = Job(tmp_path_factory.mktemp("job"))
    first, second = texts()
    announce(job.spool, 0, first)
    job.spool.process_record(0, 1).write_text(
        job.spool.process_record(0, 0).read_text().replace('"rank": 0', '"rank": 1')
    )
    assert job.gather(last=False) == []  # rank 1 may announce it yet
    assert job.reducing._running is None
    announce(job.spool, 1, second)
    job.records = job.gather(last=False)
    return job


def test_the_run_directory_has_one_object_and_no_trace(reduced: Job) -> None:
    assert reduced.notes == []
    kept = sorted(p.relative_to(reduced.run.path).as_posix() for p in reduced.run.path.rglob("*") if p.is_file())
    window = "attempt_0/window_000"
    assert kept == [f"{window}/columns/node7.columns", f"{window}/rank_00000.json", f"{window}/rank_00001.json"]
    assert [(r.rank, r.status, r.trace, r.columns) for r in reduced.records] == [
        (0, "ok", "rank_00000.trace.json.gz", "node7.columns"),
        (1, "ok", "rank_00001.trace.json.gz", "node7.columns"),
    ]
    assert set(reduced.gatherer.placing.sums) == set(kept)
    assert not list(reduced.spool.path.glob("trace_*"))
    assert RECORDED.fullmatch(kept[0])  # `runs prune` takes it


def test_the_report_is_that_of_the_traces(reduced: Job, tmp_path: Path) -> None:
    whole = RunDir(tmp_path / "run")
    whole.window(0, 0).mkdir(parents=True)
    for rank, text in enumerate(texts()):
        whole.trace(0, 0, rank).write_bytes(gzip.compress(text))
    before = contract.render(analyze(load_traces([whole.path], workers=1, cache=False), hta=False))
    moved = tmp_path / "moved"
    shutil.copytree(reduced.run.path, moved)
    after = contract.render(analyze(load_traces([moved], workers=1, cache=False), hta=False))
    assert after == before.replace(str(whole.path), str(moved))


def test_a_trace_that_is_kept_is_believed_before_its_columns(reduced: Job, tmp_path: Path) -> None:
    both = RunDir(tmp_path / "run")
    shutil.copytree(reduced.run.path, both.path)
    both.trace(0, 0, 0).write_bytes(gzip.compress(texts()[0]))
    load = load_traces([both.path], workers=1, cache=False)
    assert [(s.rank, s.status) for s in load.sources] == [(0, "used"), (1, "used")]


def test_an_object_that_was_cut_off_is_named(reduced: Job, tmp_path: Path) -> None:
    cut = RunDir(tmp_path / "run")
    shutil.copytree(reduced.run.path, cut.path)
    path = cut.columns(0, 0, "node7")
    path.write_bytes(path.read_bytes()[:-30])
    (source,) = load_traces([cut.path], workers=1, cache=False).sources
    assert (source.status, source.path) == ("unusable", str(path))


def test_a_damaged_trace_is_kept_whole_and_the_others_are_reduced(tmp_path: Path) -> None:
    job, (first, second) = Job(tmp_path), texts()
    announce(job.spool, 0, first)
    announce(job.spool, 1, second[: len(second) // 2])
    records = job.gather(last=True)
    assert [(r.rank, r.status, r.columns) for r in records] == [(0, "ok", "node7.columns"), (1, "corrupt", None)]
    assert job.run.trace(0, 0, 1).exists()


@pytest.mark.parametrize("room", [True, False])
def test_columns_without_room_wait_for_it_until_the_job_has_ended(
    room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [0]
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free[0], f_frsize=1, f_blocks=1000))
    job, now = Job(tmp_path, DiskLimits(leave_free=1)), [0.0]
    job.reducing._clock = lambda: now[0]
    announce(job.spool, 0, texts()[0])
    assert job.gather(last=False) == []
    assert (job.gatherer.reduces(), job.notes) == (True, [])
    assert not job.run.columns(0, 0, "node7").exists()
    free[0], now[0] = 10**9 if room else 0, 10.0
    records = job.gather(last=not room)
    if room:
        assert [record.columns for record in records] == ["node7.columns"]
        return
    assert (records, job.gatherer.reduces()) == ([], False)
    assert "gather.leave_free_gb" in job.notes[0]  # the whole trace has no room either, and stays
    assert "gather.leave_free_gb" in next(iter(job.gatherer.left.values()))


@pytest.mark.parametrize(
    ("does", "said"), [("import sys; sys.exit(3)", "ended with code 3"), ("print('nothing')", "could not be placed")]
)
def test_without_a_process_that_reduces_all_traces_are_kept_whole(
    does: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_process, "command", lambda *_: [sys.executable, "-S", "-c", does])
    job = Job(tmp_path)
    for rank in (0, 1):
        announce(job.spool, rank, b'{"traceEvents": []}')
    assert [(r.rank, r.columns) for r in job.gather(last=True)] == [(0, None), (1, None)]
    assert job.run.trace(0, 0, 1).exists()
    (note,) = job.notes
    assert said in note


@pytest.mark.parametrize("ended", [False, True])
def test_a_process_that_takes_too_long_is_ended(ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the job runs it may take its time; once the job has ended somebody waits."""
    waits = "import signal; signal.pause()"
    monkeypatch.setattr(own_process, "command", lambda *_: [sys.executable, "-S", "-c", waits])
    job, now = Job(tmp_path), [0.0]
    monkeypatch.setattr(module, "_LEAST_S", 1000.0 if ended else 300.0)
    job.reducing._clock = lambda: now[0]
    announce(job.spool, 0, b'{"traceEvents": []}')
    assert job.gatherer.gather(last=False) == []
    now[0] = 299.0
    assert job.gatherer.gather(last=False) == []
    assert job.gatherer.reduces()
    assert job.gatherer.gather(last=ended) == []
    now[0] = 358.0 if ended else 299.9
    assert job.gatherer.gather(last=ended) == []
    now[0] = 359.0 if ended else 300.1
    (record,) = job.gatherer.gather(last=ended)
    assert (record.columns, job.run.trace(0, 0, 0).exists()) == (None, True)
    assert "took too long" in job.notes[0]
