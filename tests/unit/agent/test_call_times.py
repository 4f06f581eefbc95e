"""When steps issue their collectives: from torch's flight recorder to the step log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.agent.steps.call_times import MOST_STEPS, CallTimes, call_times
from rankscope.agent.steps.step_log import StepLog
from rankscope.between.step_logs import StepTimes, parse
from rankscope.node.gathering.step_log import StepLogDrain
from rankscope.records.running.step_log import CALL_TIMES_ENTRY, STEP_LOG_ENTRY
from rankscope.rundir.spool import Spool

RECORDED = Path(__file__).parents[2] / "data" / "recorder"
MS = 1_000_000


def recorded(name: str) -> list[dict[str, Any]]:
    """What torch 2.11 dumped in a rank of four, with its times counted from the first call."""
    entries = json.loads((RECORDED / name).read_text())["entries"]
    first = entries[0]["time_created_ns"]
    return [{**entry, "time_created_ns": entry["time_created_ns"] - first} for entry in entries]


def call(at_ms: float, **more: Any) -> dict[str, Any]:
    return {"profiling_name": "nccl:all_reduce", "time_created_ns": round(at_ms * MS), **more}


def test_a_recorded_step_of_fsdp() -> None:
    # Entries 16 to 33 are one step: six all-gathers in the forward, and the backward, of which the last call was issued
    # 337.465271 ms after the first call of all. That one is the oldest, so that no step before it is whole.
    backward = (326 * MS, 338 * MS)
    steps = [(6, -5 * MS, []), (7, 300 * MS, [(5 * MS, 15 * MS)]), (8, 340 * MS, [backward])]
    assert call_times(recorded("nccl_fsdp2.json"), steps) == [(8, 11_465, 18, 0)]
    # on another clock
    moved = [(n, end - 77, [(a - 77, b - 77) for a, b in backwards]) for n, end, backwards in steps]
    assert call_times(recorded("nccl_fsdp2.json"), moved, ahead=77) == [(8, 11_465, 18, 0)]


def test_a_recorded_pipeline() -> None:
    # Of the 17 entries 8 are launches of the 9 sends and receives beside them; none lies in the backward noted here.
    steps = [(0, -1, []), (1, 0, []), (2, 100 * MS, [(90 * MS, 95 * MS)])]
    launches = [e for e in recorded("nccl_pipeline.json") if e["profiling_name"] == "nccl:coalesced"]
    assert len(launches) == 8
    assert call_times(recorded("nccl_pipeline.json"), steps) == [(2, 0, 9, 0)]


def test_micro_batches_and_time_on_the_device() -> None:
    entries = [call(0), call(41, duration_ms=2.5), call(47, duration_ms=1.25), call(49.5), {}, {"time_created_ns": "?"}]
    # The backward of the first micro-batch has no calls and is the rank's own: 10 ms. The second begins at 40 ms and
    # issues its last call at 47 ms. What is issued after it is a call of the step.
    step = (1, 50 * MS, [(20 * MS, 30 * MS), (40 * MS, 48 * MS)])
    assert call_times(entries, [(0, 10 * MS, []), step]) == [(1, 17_000, 3, 38)]


def test_each_library_has_a_ring_of_its_own() -> None:
    # NCCL's ring goes back to 25 ms only, so that the step from 10 to 20 ms may have had calls that are overwritten.
    entries = [call(0, profiling_name="gloo:barrier"), call(25), call(35)]
    steps = [(0, 10 * MS, []), (1, 20 * MS, []), (2, 30 * MS, []), (3, 40 * MS, [])]
    assert call_times(entries, steps) == [(3, 0, 1, 0)]


class Job:
    """Steps of 20 ms, each with a call in its backward, and a recorder that takes so long to read."""

    def __init__(self, folder: Path, share: float = 0.0025, read_ms: float = 20.0) -> None:
        self.now, self.read_ms, self.calls, self.busy = 0, read_ms, [], False
        self.reads: list[int] = []
        self.number = 0
        self.times = CallTimes(folder / "calls", share, self.read, lambda: self.busy, lambda: self.now)

    def read(self) -> list[dict[str, Any]] | None:
        self.now += round(self.read_ms * MS)
        self.reads.append(self.number)
        return self.calls[-2000:]

    def steps(self, count: int) -> None:
        for _ in range(count):
            begin = self.now
            self.calls.append(call((begin + 12 * MS) / MS))
            self.now += 20 * MS
            self.times.note(self.number, self.now, [(begin + 8 * MS, begin + 16 * MS)])
            self.times.read_if_due()
            self.number += 1


def test_reads_stay_within_their_share_and_fall_on_the_same_steps(tmp_path: Path) -> None:
    ranks = [Job(tmp_path, read_ms=took) for took in (20.0, 13.0, 70.0)]
    for rank in ranks:
        rank.steps(9000)
        spent = rank.read_ms * len(rank.reads)
        assert 0 < spent <= 0.0025 * 20 * 9000, rank.reads
    # 20 ms are 1/400 of 8 s: every 400th step or more seldom. 13 ms: 260; 70 ms: 1400. By powers of two ranks meet.
    assert [rank.reads[2] - rank.reads[1] for rank in ranks] == [512, 512, 2048]
    assert set(ranks[2].reads[1:]) <= set(ranks[0].reads)


@pytest.mark.parametrize("share", [0.0, 0.0025])
def test_no_recorder_and_no_share(tmp_path: Path, share: float) -> None:
    job = Job(tmp_path, share)
    job.calls = []
    job.read = lambda: (job.reads.append(job.number), None)[1]  # type: ignore[method-assign]
    job.times._read = job.read
    job.steps(3000)
    assert job.reads == ([] if not share else [511]), "it is asked once"
    assert job.times.off


def test_nothing_is_read_while_a_graph_is_captured(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.busy = True
    job.steps(2000)
    assert job.reads == []


def test_a_full_disk_ends_it_and_nothing_else(tmp_path: Path) -> None:
    job = Job(tmp_path / "not there")
    job.steps(MOST_STEPS)
    assert job.reads == [511]
    assert job.times.off


def through_the_helper(folder: Path, log: StepLog, told: list[tuple[int, int, int, int]]) -> StepTimes:
    spool = Spool(folder)
    ring, drain = spool.step_ring(0, 0), StepLogDrain(spool)
    log.flush()
    assert drain.drain() == {}
    spool.call_times(ring).write_bytes(b"".join(CALL_TIMES_ENTRY.pack(*entry) for entry in told) + b"half")
    for _ in range(2):
        assert drain.drain() == {}
    log.step(False, 0)
    log.flush()
    assert StepLogDrain(spool).drain() == {}, "the next helper finds the same"
    return parse(spool.step_log(ring).read_bytes(), "log")


def test_the_helper_adds_them_to_the_steps_they_belong_to(tmp_path: Path) -> None:
    log = StepLog(Spool(tmp_path).step_ring(0, 0))
    for _ in range(5):
        log.step(False, 7_000_000)
    # the last one is of a step that the log does not have so far: device times can be that late
    found = through_the_helper(tmp_path, log, [(1, 1500, 3, 25), (3, 2500, 4, 0), (5, 9000, 7, 0)])
    assert found.column("issued").tolist() == [0, 1.5, 0, 2.5, 0, 9.0]
    assert found.entries["calls"].tolist() == [0, 3, 0, 4, 0, 7]
    assert found.entries["calls_device"].tolist() == [0, 25, 0, 0, 0, 0]
    assert found.column("gc").tolist()[1:5] == [7.0] * 4, "all else is as it was"


def test_steps_that_are_folded_already_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.node.gathering.step_log.KEPT_EXACT", 100)
    log = StepLog(Spool(tmp_path).step_ring(0, 0))
    for number in range(400):
        log.step(False, 1_000_000 * number)
    found = through_the_helper(tmp_path, log, [(10, 1500, 3, 0), (399, 2500, 4, 0)])
    exact = np.flatnonzero(found.column("issued"))
    assert exact.tolist() == [399]
    assert found.steps == 401
    assert found.entries.itemsize == STEP_LOG_ENTRY.size
