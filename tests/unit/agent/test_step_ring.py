"""The ring buffer of step times, written by the agent and drained by the helper."""

from __future__ import annotations

import gzip
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope.agent.steps.step_log import StepLog
from rankscope.agent.steps.thread_clock import ThreadClock
from rankscope.node.gathering.step_log import StepLogDrain
from rankscope.records.running.step_log import (
    CHECKPOINT,
    RECORDED,
    STEP_LOG_CAPACITY,
    STEP_LOG_COLUMNS,
    STEP_LOG_ENTRY,
    STEP_LOG_HEADER,
    WRAPPED,
)
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


def entries(tmp_path) -> list[tuple[int, ...]]:
    raw = gzip.decompress(RunDir(tmp_path / "run").step_log(0, 1).read_bytes())
    return list(STEP_LOG_ENTRY.iter_unpack(raw[STEP_LOG_HEADER.size :]))


def test_every_step_reaches_the_run_directory_once(tmp_path):
    spool = Spool(tmp_path)
    pulse, drain = StepLog(spool.step_ring(0, 1)), StepLogDrain(spool)
    pulse.input_ns = 5_000_000
    assert pulse.step(False, 2_000_000) == 0  # nobody saw the first step begin
    pulse.flush()
    drain.drain()
    assert pulse.step(True, 0) > 0
    pulse.flush()
    drain.drain()
    pulse.step(False, 0)
    pulse.close()
    drain.finish(RunDir(tmp_path / "run"))
    # duration, data loader and garbage collection in microseconds; then steps, flags
    (first, second, third) = entries(tmp_path)
    assert (first[:3], first[-5:-2]) == ((0, 5000, 2000), (1, 0, 0))
    assert (second[1:3], second[-5:-2]) == ((0, 0), (1, RECORDED, 0))
    assert (third[1:3], third[-5:-2]) == ((0, 0), (1, 0, 0))
    assert first[-1] < second[-1] < third[-1], "ends on CLOCK_REALTIME"


def test_steps_before_the_log_are_lost_ones_and_the_others_keep_their_numbers(tmp_path):
    spool = Spool(tmp_path)
    drain, lost = StepLogDrain(spool), (0,) * len(STEP_LOG_ENTRY.unpack(bytes(STEP_LOG_ENTRY.size)))
    # GIVEN a rank that was known after its third step
    pulse = StepLog(spool.step_ring(0, 1), before=2)
    drain.drain()  # it has logged nothing yet
    for _ in range(2):
        pulse.step(False, 1000)
        pulse.flush()
        drain.drain()
    assert pulse.steps == 4
    assert drain.counts() == {(0, 1): 4}
    drain.finish(RunDir(tmp_path / "run"))
    found = entries(tmp_path)
    assert found[:2] == [lost, lost]
    assert [(entry[0] > 0, entry[2]) for entry in found[2:]] == [(False, 1), (True, 1)]


def test_a_ring_that_went_round_keeps_the_newest(tmp_path):
    spool = Spool(tmp_path)
    pulse, drain = StepLog(spool.step_ring(0, 1)), StepLogDrain(spool)
    for number in range(STEP_LOG_CAPACITY + 3):
        pulse.step(False, 1000 * number)
    pulse.close()
    drain.finish(RunDir(tmp_path / "run"))
    found = entries(tmp_path)
    # the first three were overwritten before anyone looked: one entry says so
    assert len(found) == STEP_LOG_CAPACITY + 1
    assert found[0][:-5] == (0,) * len(STEP_LOG_COLUMNS)
    assert found[0][-5:] == (3, 0, 0, 0, 0)
    assert [entry[2] for entry in found[1:3]] == [3, 4]
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
    log.flush()
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:3], at))  # the rest found no room
    assert log.step(False, 0) > 0
    log.flush()
    assert log.step(False, 0) > 0
    assert "steps from 1 on" in log.error


def test_nothing_is_mapped(tmp_path):
    log = StepLog(tmp_path / "ring")
    log.step(False, 0)
    log.flush()
    assert str(tmp_path / "ring") not in Path("/proc/self/maps").read_text()


def test_a_descriptor_that_is_the_scripts_own_by_now_is_neither_written_nor_closed(tmp_path):
    log = StepLog(tmp_path / "ring")
    log.step(False, 0)
    number = log._file
    with (tmp_path / "theirs").open("wb") as theirs:
        os.dup2(theirs.fileno(), number)  # after it had closed all that it knows nothing of
    assert log.step(False, 0) > 0
    log.flush()
    assert log.step(False, 0) > 0
    assert "closed its descriptor" in log.error
    assert os.write(number, b"theirs") == 6
    os.close(number)
    assert (tmp_path / "theirs").read_bytes() == b"theirs"


def test_a_closed_descriptor_ends_the_log_and_not_the_step(tmp_path):
    log = StepLog(tmp_path / "ring")
    os.close(log._file)
    assert log.step(False, 0) == 0
    log.flush()
    assert log.step(False, 0) > 0
    assert "steps from 0 on" in log.error


def test_the_parts_of_a_step_add_up_to_it(tmp_path, monkeypatch):
    now = [0]
    monkeypatch.setattr("rankscope.agent.steps.step_log.perf_counter_ns", lambda: now[0])
    spool = Spool(tmp_path)
    log = StepLog(spool.step_ring(0, 1))
    log.step(False, 0)
    # two micro-batches: forward at 2 and 11 ms, backward from 5 to 9 and from 12 to 18 ms, the step ends after 20 ms
    for at, mark in ((2, "forward"), (5, "backward"), (9, "backward_ended"), (11, "forward"), (12, "backward"),
                     (18, "backward_ended")):  # fmt: skip
        now[0] = at * 1_000_000
        log.mark(mark)
    log.flags |= CHECKPOINT
    now[0] = 20_000_000
    log.step(False, 0)
    now[0] = 23_000_000
    log.step(False, 0)
    log.close()
    StepLogDrain(spool).finish(RunDir(tmp_path / "run"))
    _, second, third = (dict(zip((*STEP_LOG_COLUMNS, "span", "flags"), e, strict=False)) for e in entries(tmp_path))
    # before: 0 to 2 and 9 to 11; forward: 2 to 5 and 11 to 12; backward: 5 to 9 and 12 to 18; after: 18 to 20
    parts = ("step", "before", "forward", "backward", "after")
    assert [second[name] for name in parts] == [20_000, 4_000, 4_000, 10_000, 2_000]
    assert second["flags"] == WRAPPED | CHECKPOINT
    assert [third[name] for name in parts] == [3_000, 3_000, 0, 0, 0], "what was marked is forgotten with its step"
    assert third["flags"] == 0


def test_the_clock_of_a_thread_counts_its_cpu_time_and_not_its_sleep():
    clock = ThreadClock()
    clock.follow()
    begun = clock.read()[0]
    end = time.thread_time_ns() + 20_000_000
    while time.thread_time_ns() < end:
        pass
    worked = clock.read()[0]
    assert worked - begun >= 19_000_000
    time.sleep(0.05)
    assert clock.read()[0] - worked < 20_000_000


def test_the_clock_of_a_thread_reads_no_file_of_the_script():
    clock = ThreadClock()
    clock.follow()
    number = clock._file
    with Path("/proc/self/status").open("rb") as theirs:
        os.dup2(theirs.fileno(), number)
    clock.read()
    assert clock._file is None
    clock.close()
    os.close(number)  # still theirs


MS = 1_000_000


class Clock:
    """Stands for the clock of a step log, and for its thread, which sleeps and waits for CPUs as the test wants."""

    def __init__(self, monkeypatch, read_us: float) -> None:
        self.now, self.ran, self.held, self.reads, self.read_ns = 0, 0, 0, 0, int(read_us * 1000)
        monkeypatch.setattr("rankscope.agent.steps.step_log.perf_counter_ns", lambda: self.now)

    def pass_ms(self, ran: float, held: float = 0.0) -> None:
        self.now += int((ran + held) * MS)
        self.ran += int(ran * MS)
        self.held += int(held * MS)

    def read(self) -> tuple[int, int]:
        self.reads += 1
        self.now += self.read_ns
        return self.ran, self.held

    def step(self, log, forward: float = 8.0, backward: float = 10.0, held: float = 0.0) -> None:
        log.mark("forward")
        self.pass_ms(forward, held)
        log.mark("backward")
        self.pass_ms(backward)
        log.mark("backward_ended")
        self.pass_ms(2)
        log.step(False, 0)


@pytest.fixture
def clocked(tmp_path, monkeypatch):
    """A log of steps of 20 ms whose counters take 25 us to read, and its columns by step."""
    spool = Spool(tmp_path)
    clock = Clock(monkeypatch, read_us=25)
    log, drain = StepLog(spool.step_ring(0, 1)), StepLogDrain(spool)
    monkeypatch.setattr(log.clock, "read", clock.read)

    def columns() -> list[dict[str, int]]:
        log.close()
        drain.finish(RunDir(tmp_path / "run"))
        return [dict(zip(STEP_LOG_COLUMNS, entry, strict=False)) for entry in entries(tmp_path)]

    return SimpleNamespace(clock=clock, log=log, drain=drain, columns=columns, ring=spool.step_ring(0, 1))


def test_steps_are_written_together_and_the_counters_seldom_read(clocked):
    """Three reads of 25 us are to take 0.05 % of the time at most: of 150 ms, which are 7.5 steps, so each 8th."""
    for _ in range(64):
        clocked.clock.step(clocked.log)
    clocked.clock.reads = 0
    for _ in range(160):
        clocked.clock.step(clocked.log)
    # 20 steps are read in full, and half a second passes every 25 steps
    assert 3 * 20 <= clocked.clock.reads <= 3 * 20 + 8
    found = clocked.columns()
    assert len(found) == 224
    for entry in found[64:]:  # the thread always ran: 20 ms a step, 10 of them in the backward
        assert entry["cpu"] == pytest.approx(20_000, abs=300)
        assert entry["cpu_backward"] == pytest.approx(10_000, abs=300)
        assert entry["held"] == entry["held_backward"] == 0


def test_a_step_that_was_on_a_run_queue_is_found_though_it_was_not_read(clocked):
    for _ in range(64):
        clocked.clock.step(clocked.log)
    for number in range(64, 90):
        clocked.clock.step(clocked.log, held=4 * (number == 70))
    found = clocked.columns()
    assert found[70]["held"] == pytest.approx(4000, abs=100)
    assert sum(entry["held"] for entry in found) == pytest.approx(4000, abs=100)
    assert all(entry["held_backward"] == 0 for entry in found)


def test_steps_that_take_more_cpu_time_than_before_are_read(clocked):
    for _ in range(100):
        clocked.clock.step(clocked.log)
    for _ in range(100):
        clocked.clock.step(clocked.log, forward=10, backward=12.5)
    # steps are written every half a second: from then on each of these is exact
    assert [entry["cpu_backward"] for entry in clocked.columns()[140:200]] == [12_500] * 60


def test_on_a_busy_machine_the_counters_are_read_in_every_step(clocked):
    for _ in range(64):
        clocked.clock.step(clocked.log, held=1.0)
    clocked.clock.reads = 0
    for _ in range(10):
        clocked.clock.step(clocked.log, held=1.0)
    assert clocked.clock.reads >= 20
    assert [entry["held"] for entry in clocked.columns()[-10:]] == [1000] * 10


def test_a_long_step_is_written_at_once(clocked):
    for _ in range(40):
        clocked.clock.step(clocked.log)
    clocked.clock.step(clocked.log, forward=600)
    clocked.drain.drain()
    assert clocked.drain.counts() == {(0, 1): 41}


def test_so_many_steps_are_written_however_short_they_are(clocked):
    for _ in range(400):
        clocked.clock.step(clocked.log, forward=0, backward=0)
        clocked.drain.drain()
        assert clocked.log.steps - clocked.drain.counts()[0, 1] < 64


def test_marks_without_any_end_of_a_step_are_not_kept_for_ever(clocked):
    for _ in range(10_000):
        clocked.log.mark("forward")
    assert clocked.log.part == "forward"
    assert len(clocked.log._marks) < 10_000
    clocked.log.step(False, 0)
    clocked.drain.drain()
    assert clocked.drain.counts() == {(0, 1): 1}


def test_another_thread_writes_what_has_ended_and_leaves_the_step_that_goes_on(clocked):
    clocked.log.step(False, 0)
    clocked.log.mark("forward")
    clocked.clock.pass_ms(5)
    clocked.log.mark("backward")
    asking = threading.Thread(target=clocked.log.flush)
    asking.start()
    asking.join(60)
    clocked.drain.drain()
    assert (clocked.drain.counts(), clocked.log.part) == ({(0, 1): 1}, "backward")
    clocked.clock.pass_ms(7)
    clocked.log.mark("backward_ended")
    clocked.log.step(False, 0)
    found = clocked.columns()[1]
    assert (found["forward"], found["backward"]) == (pytest.approx(5000, abs=100), pytest.approx(7000, abs=100))
