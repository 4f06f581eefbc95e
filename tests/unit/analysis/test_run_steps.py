"""Hand-made step logs; every expected number follows from the definition in docs/metrics.md."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.analysis.tables.run_steps import read_step_logs
from rankscope.between.step_logs import ENTRY
from rankscope.errors import AnalysisError
from rankscope.records.manifest import RunManifest, WindowRanks
from rankscope.records.rank import RankRecord
from rankscope.records.run_steps import RecordedRange, RunSteps
from rankscope.records.running.step_log import (
    ASKED,
    STEP_LOG_ENTRY,
    STEP_LOG_ENTRY_V1,
    STEP_LOG_HEADER,
    STEP_LOG_MAGIC,
    STEP_LOG_VERSION,
)
from rankscope.rundir.layout import RunDir
from rankscope.trace.files.load import load_traces

Entry = tuple[float, float, float, int]


def write(run: Path, rank: int, entries: list[Entry], attempt: int = 0) -> Path:
    """Entries in ms: step, input, garbage collection; then the flag."""
    raw = b"".join(
        STEP_LOG_ENTRY_V1.pack(round(step * 1e3), round(data * 1e3), round(gc * 1e3), flag)
        for step, data, gc, flag in entries
    )
    path = RunDir(run).step_log(attempt, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(raw))
    return path


def read(*paths: Path, world_size: int | None = None) -> RunSteps:
    report = read_step_logs(paths, world_size)
    assert report is not None
    return report


def test_curve_and_totals_of_two_ranks(tmp_path: Path) -> None:
    first = [(0, 0, 0, 0), (10, 1, 0, 0), (12, 1, 3, 0), (50, 0, 9, 1), (300, 0, 0, 0), (14, 2, 0, 0)]
    second = [(0, 0, 0, 0), (20, 6, 0, 0), (22, 6, 0, 0), (60, 0, 0, 1), (310, 0, 0, 0), (24, 6, 0, 0)]
    report = read(write(tmp_path, 0, first), write(tmp_path, 1, second))
    assert (report.attempt, report.steps, report.unprofiled_steps) == (0, 6, 3)
    assert report.windows == [RecordedRange(first=3, last=3)]
    assert [(b.first, b.last) for b in report.buckets] == [(step, step) for step in range(6)]
    assert [b.step_ms for b in report.buckets] == [None, 15, 17, 55, 305, 19]
    assert [(b.slowest_ms, b.slowest_rank) for b in report.buckets][1:] == [
        (20, 1),
        (22, 1),
        (60, 1),
        (310, 1),
        (24, 1),
    ]
    assert [(b.input_ms, b.input_rank) for b in report.buckets][3:] == [(0, 0), (0, 0), (6, 1)]
    row = report.rows[0]
    assert (row.rank, row.steps, row.median_ms, row.longest_ms, row.longest_step) == (0, 3, 12, 14, 5), (
        "closing the window is no step of the job"
    )
    assert row.p99_ms == pytest.approx(12 + 0.98 * 2)  # linear between the two longest of three
    assert row.input_pct == pytest.approx(100 * 4 / 36)
    assert row.gc_ms_per_step == pytest.approx(1)
    assert (row.drift_pct, report.median_ms) == (None, 17)
    assert (report.around_ms, report.typical) == (None, None), "all of the run is near its window"


def test_a_long_run_has_four_hundred_points(tmp_path: Path) -> None:
    steps: list[Entry] = [(10, 0, 0, 0)] * 1000
    steps[0], steps[502] = (0, 0, 0, 0), (70, 0, 0, 0)
    buckets = read(write(tmp_path, 0, steps)).buckets
    assert len(buckets) == 334  # 3 steps each, as 2 would need 500
    assert [(b.first, b.last) for b in (buckets[0], buckets[-1])] == [(0, 2), (999, 999)]
    assert (buckets[0].step_ms, buckets[0].slowest_ms) == (10, 10), "the first step is not a step of 0 ms"
    assert (buckets[167].step_ms, buckets[167].slowest_ms) == (30, 70)  # steps 501 to 503: (10 + 70 + 10) / 3


@pytest.mark.parametrize(("around", "typical"), [(10, True), (11, True), (11.5, False), (8.5, False)])
def test_windows_are_typical_or_not(tmp_path: Path, around: float, typical: bool) -> None:
    steps: list[Entry] = [(10, 0, 0, 0)] * 200
    steps[80:106] = [(around, 0, 0, 0)] * 26
    steps[100:106] = [(90, 0, 0, 1)] * 6
    steps[106:126] = [(around, 0, 0, 0)] * 20
    report = read(write(tmp_path, 0, steps))
    assert report.windows == [RecordedRange(first=100, last=105)]
    assert (report.median_ms, report.around_ms, report.typical) == (10, around, typical)
    assert report.unprofiled_steps == 193


def test_a_host_that_waits_for_its_device_each_tenth_step(tmp_path: Path) -> None:
    # nine steps of 1 ms and one of 191: 20 ms a step; from step 200 on 30 ms
    early: list[Entry] = [(191 if number % 10 == 9 else 1, 0, 0, 0) for number in range(200)]
    late: list[Entry] = [(291 if number % 10 == 9 else 1, 0, 0, 0) for number in range(200)]
    early[100:106] = [(*entry[:3], 1) for entry in early[100:106]]
    report = read(write(tmp_path, 0, early + late))
    (row,) = report.rows
    assert (row.steps, row.longest_ms, row.drift_pct) == (393, 291, pytest.approx(50))
    assert (report.around_ms, report.typical) == (pytest.approx(20), False)
    assert [(b.first, b.step_ms, b.slowest_ms) for b in report.buckets[19:21]] == [(190, 20, 191), (200, 30, 291)]
    assert len(report.buckets) == 40


def test_drift_is_the_last_quarter_against_the_first(tmp_path: Path) -> None:
    rising: list[Entry] = [(10 + number // 10, 0, 0, 0) for number in range(40)]  # 10, 11, 12, 13 ms
    short: list[Entry] = rising[:39]
    report = read(write(tmp_path, 0, rising), write(tmp_path, 1, short))
    assert [row.drift_pct for row in report.rows] == [pytest.approx(30), None]


def test_a_step_that_one_rank_recorded_counts_for_none(tmp_path: Path) -> None:
    recording = [(10, 0, 0, 0), (99, 0, 0, 1), (10, 0, 0, 0)]
    beside = [(10, 0, 0, 0), (98, 0, 0, 0), (10, 0, 0, 0), (30, 0, 0, 0)]  # and it lived longer
    report = read(write(tmp_path, 0, recording), write(tmp_path, 1, beside))
    assert [(row.steps, row.longest_ms) for row in report.rows] == [(1, 10), (2, 30)]
    assert report.buckets[3].step_ms == 30, "of the ranks that were there"


def test_overwritten_steps_are_no_steps_of_0_ms(tmp_path: Path) -> None:
    report = read(write(tmp_path, 0, [(0, 0, 0, 0)] * 3 + [(10, 0, 0, 0)]))
    assert [b.step_ms for b in report.buckets] == [None, None, None, 10]
    assert (report.rows[0].steps, report.rows[0].median_ms) == (1, 10)


def test_only_the_last_attempt(tmp_path: Path) -> None:
    paths = [write(tmp_path, 0, [(10, 0, 0, 0)] * 3, attempt=9), write(tmp_path, 0, [(20, 0, 0, 0)] * 2, attempt=10)]
    report = read(*paths)
    assert (report.attempt, report.steps, report.median_ms, report.notes) == (10, 2, 20, [])


def test_what_cannot_be_read_is_skipped_and_named(tmp_path: Path) -> None:
    whole, cut, odd, empty = (write(tmp_path, rank, [(10, 0, 0, 0)] * 50) for rank in range(4))
    cut.write_bytes(cut.read_bytes()[:-9])
    odd.write_bytes(gzip.compress(bytes(17)))
    empty.write_bytes(b"")
    report = read(whole, cut, odd, empty, world_size=6)
    assert [row.rank for row in report.rows] == [0]
    assert [note.partition(" could")[0] for note in report.notes[:3]] == [
        f"the step times of rank {r}" for r in (1, 2, 3)
    ]
    assert report.notes[3] == "no step times of 2 of 6 ranks, the first of them rank 4"
    assert len(report.notes) == 4
    with pytest.raises(AnalysisError, match="the step times of rank 1 could not be read"):
        read_step_logs([cut])


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("bomb", "unpacks to more than 160 bytes"),
        ("fifo", "a FIFO, not a regular file"),
        ("zero", "a device, not a reg"),
    ],
)
def test_what_is_no_step_log_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, said: str
) -> None:
    monkeypatch.setattr("rankscope.between.step_logs.MAX_BYTES", 160)
    good, bad = write(tmp_path, 0, [(10, 0, 0, 0)] * 10), write(tmp_path, 1, [(10, 0, 0, 0)] * 11)
    if what != "bomb":
        bad.unlink()
        os.mkfifo(bad) if what == "fifo" else bad.symlink_to("/dev/zero")
    report = read(good, bad)
    assert [row.rank for row in report.rows] == [0]
    assert len(report.notes) == 1
    assert "the step times of rank 1 could not be read" in report.notes[0]
    assert said in report.notes[0]


def test_without_step_logs_there_are_no_run_steps(tmp_path: Path) -> None:
    assert read_step_logs([]) is None
    assert read_step_logs([tmp_path / "rank_00000.bin.gz"]) is None


def test_the_pipeline_finds_the_step_logs_of_a_run(tmp_path: Path) -> None:
    write(tmp_path, 0, [(10, 0, 0, 0)] * 4)
    record = RankRecord(
        rank=0, local_rank=0, world_size=2, host="a", pid=1, attempt=0, window=0, status="missing", reason="killed"
    )
    manifest = RunManifest(
        run_id="r1",
        argv=[],
        config={},
        versions={},
        hosts=["a"],
        world_size=2,
        attempts=1,
        exit_code=0,
        windows=[WindowRanks(attempt=0, window=0, world_size=2, records=[record])],
        lives=[],
    )
    report = analyze(load_traces([tmp_path]), manifest, hta=False)
    assert report.pulse is not None
    assert (report.pulse.median_ms, report.pulse.notes) == (
        10,
        ["no step times of 1 of 2 ranks, the first of them rank 1"],
    )
    assert report.errors == []


def test_a_step_in_which_the_log_itself_took_time_is_no_step_of_the_job(tmp_path: Path) -> None:
    entries = np.zeros(40, ENTRY)
    entries["step"], entries["span"] = 10_000, 1
    entries["step"][0], entries["step"][20], entries["flags"][20] = 0, 60_000, ASKED
    path = RunDir(tmp_path).step_log(0, 0)
    path.parent.mkdir(parents=True)
    header = STEP_LOG_HEADER.pack(STEP_LOG_MAGIC, STEP_LOG_VERSION, STEP_LOG_ENTRY.size, 0)
    path.write_bytes(gzip.compress(header + entries.tobytes()))
    (row,) = read(path).rows
    assert (row.steps, row.longest_ms, row.median_ms) == (38, 10, 10)
