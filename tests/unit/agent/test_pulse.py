"""The ring of step times, written by the agent and drained by the helper."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from rankscope.agent.steps.step_log import StepLog
from rankscope.node.step_log import StepLogDrain
from rankscope.records.step_log import STEP_LOG_CAPACITY, STEP_LOG_ENTRY
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


def entries(tmp_path) -> list[tuple[int, ...]]:
    return list(STEP_LOG_ENTRY.iter_unpack(gzip.decompress(RunDir(tmp_path / "run").pulse(0, 1).read_bytes())))


def test_every_step_reaches_the_run_directory_once(tmp_path):
    spool = Spool(tmp_path)
    pulse, drain = StepLog(spool.pulse(0, 1)), StepLogDrain(spool)
    pulse.input_ns = 5_000_000
    assert pulse.step(False, 2_000_000) == 0  # nobody saw the first step begin
    drain.drain()
    assert pulse.step(True, 0) > 0
    drain.drain()
    pulse.step(False, 0)
    drain.finish(RunDir(tmp_path / "run"))
    # duration, data loader and garbage collection in microseconds, inside a window
    (first, second, third) = entries(tmp_path)
    assert first == (0, 5000, 2000, 0)
    assert second[1:] == (0, 0, 1)
    assert third[1:] == (0, 0, 0)


def test_a_ring_that_went_round_keeps_the_newest(tmp_path):
    spool = Spool(tmp_path)
    pulse, drain = StepLog(spool.pulse(0, 1)), StepLogDrain(spool)
    for number in range(STEP_LOG_CAPACITY + 3):
        pulse.step(False, 1000 * number)
    drain.finish(RunDir(tmp_path / "run"))
    found = entries(tmp_path)
    # the first three were overwritten before anyone looked, and stay zero
    assert len(found) == STEP_LOG_CAPACITY + 3
    assert [entry[2] for entry in found[:5]] == [0, 0, 0, 3, 4]
    assert found[-1][2] == STEP_LOG_CAPACITY + 2


def test_a_full_disk_ends_the_log_and_not_the_step():
    log = StepLog(Path("/dev/full"))
    assert "No space left on device" in log.error
    assert log.step(False, 0) == 0
    assert log.step(False, 0) > 0
    assert "steps from 0 on" in log.error


def test_a_disk_that_fills_ends_the_log_and_not_the_step(tmp_path, monkeypatch):
    log, pwrite = StepLog(tmp_path / "ring"), os.pwrite
    log.step(False, 0)
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:3], at))  # the rest found no room
    assert log.step(False, 0) > 0
    assert log.step(False, 0) > 0
    assert "steps from 1 on" in log.error


def test_nothing_is_mapped(tmp_path):
    log = StepLog(tmp_path / "ring")
    log.step(False, 0)
    assert str(tmp_path / "ring") not in Path("/proc/self/maps").read_text()


def test_a_descriptor_that_is_the_scripts_own_by_now_is_neither_written_nor_closed(tmp_path):
    log = StepLog(tmp_path / "ring")
    log.step(False, 0)
    number = log._file
    with (tmp_path / "theirs").open("wb") as theirs:
        os.dup2(theirs.fileno(), number)  # after it had closed all that it knows nothing of
    assert log.step(False, 0) > 0
    assert log.step(False, 0) > 0
    assert "closed its descriptor" in log.error
    assert os.write(number, b"theirs") == 6
    os.close(number)
    assert (tmp_path / "theirs").read_bytes() == b"theirs"


def test_a_closed_descriptor_ends_the_log_and_not_the_step(tmp_path):
    log = StepLog(tmp_path / "ring")
    os.close(log._file)
    assert log.step(False, 0) == 0
    assert log.step(False, 0) > 0
    assert "steps from 0 on" in log.error
