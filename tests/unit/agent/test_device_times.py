"""Device times of the parts of a step, with a substitute for ``torch.cuda``: a stream with a clock, no GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rankscope.agent.steps.device_times import MOST_EVENTS, MOST_MARKS, DeviceTimes
from rankscope.agent.steps.step_log import _MOST_WAITING, StepLog
from rankscope.node.gathering.step_log import StepLogDrain
from rankscope.records.running.step_log import DEVICE, RECORDED, STEP_LOG_COLUMNS, STEP_LOG_ENTRY, STEP_LOG_HEADER
from rankscope.rundir.spool import Spool


class Cuda:
    """One stream. Work is launched with its length; the device has done what lies before ``reached``."""

    def __init__(self) -> None:
        self.launched_ms = 0.0
        self.reached_ms = 0.0
        self.made = 0
        self.initialised, self.capturing = True, False
        self.asked_in_capture = False
        self.error: Exception | None = None
        cuda = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing, "an event without times would be an error to read"
                cuda.made += 1
                self.at_ms: float | None = None

            def record(self) -> None:
                if cuda.error is not None:
                    raise cuda.error
                cuda.asked_in_capture |= cuda.capturing
                self.at_ms = cuda.launched_ms

            def query(self) -> bool:
                if cuda.error is not None:
                    raise cuda.error
                cuda.asked_in_capture |= cuda.capturing
                return self.at_ms is not None and self.at_ms <= cuda.reached_ms

            def elapsed_time(self, end: Event) -> float:
                assert self.query(), "torch raises where an event was not reached"
                assert end.query(), "torch raises where an event was not reached"
                return end.at_ms - self.at_ms

            def synchronize(self) -> None:
                raise AssertionError("nothing may wait for the device")

        self.Event = Event

    def is_initialized(self) -> bool:
        return self.initialised

    def is_current_stream_capturing(self) -> bool:
        return self.capturing


@pytest.fixture
def job(tmp_path):
    """A job whose steps launch 2 ms before the forward, 7 in it, 11 in the backward, and 3 behind it."""
    cuda = Cuda()
    device = DeviceTimes(cuda)
    spool = Spool(tmp_path)
    log, drain = StepLog(spool.step_ring(0, 1), device), StepLogDrain(spool)

    def step(recorded: bool = False, **more: float) -> None:
        for part, ms, mark in (
            ("before", 2, "forward"),
            ("forward", 7, "backward"),
            ("backward", 11, "backward_ended"),
        ):
            cuda.launched_ms += ms + more.get(part, 0.0)
            log.mark(mark)
        cuda.launched_ms += 3
        log.step(recorded, 0)

    def logged() -> list[tuple[int, list[int]]]:
        log.flush()
        drain.drain()
        raw = spool.step_log(spool.step_ring(0, 1)).read_bytes()[STEP_LOG_HEADER.size :]
        first = STEP_LOG_COLUMNS.index("device_before")
        return [(entry[-4], list(entry[first : first + 4])) for entry in STEP_LOG_ENTRY.iter_unpack(raw)]

    return SimpleNamespace(cuda=cuda, device=device, log=log, step=step, logged=logged)


def test_a_step_is_logged_when_the_device_has_done_it_and_in_order(job):
    job.step()  # nobody saw it begin
    job.step()
    job.step(forward=40)  # a slow device
    assert [flags & DEVICE for flags, _ in job.logged()] == [0], "the device has done nothing so far"
    job.cuda.reached_ms = 2 * 23
    job.step()
    assert [parts for flags, parts in job.logged() if flags & DEVICE] == [[2000, 7000, 11000, 3000]]
    job.cuda.reached_ms = 1000
    job.step()
    assert [parts for flags, parts in job.logged() if flags & DEVICE][1:] == [
        [2000, 47000, 11000, 3000], [2000, 7000, 11000, 3000], [2000, 7000, 11000, 3000],
    ]  # fmt: skip


def test_what_the_device_has_not_done_at_the_end_is_logged_without_its_times(job):
    for _ in range(4):
        job.step()
    job.log.close()
    assert [flags & DEVICE for flags, _ in job.logged()] == [0, 0, 0, 0]


def test_micro_batches_add_up(job):
    job.step()
    job.cuda.launched_ms += 5
    job.log.mark("forward")
    job.cuda.launched_ms += 10
    job.log.mark("backward")
    job.log.mark("backward_ended")
    job.cuda.reached_ms = 10_000
    job.step()  # 2 ms until its forward lie behind a backward of the same step, and are time before a forward
    assert job.logged()[1][1] == [7000, 17000, 11000, 3000]


def test_a_host_far_ahead_uses_so_many_events_and_loses_no_step(job):
    for _ in range(_MOST_WAITING + 100):
        job.step()
    assert job.cuda.made <= MOST_EVENTS
    job.cuda.reached_ms = job.cuda.launched_ms
    job.step()
    job.cuda.reached_ms = job.cuda.launched_ms
    job.step()
    job.log.close()
    found = job.logged()
    assert len(found) == _MOST_WAITING + 102
    assert found[1] == (found[1][0] & ~DEVICE, [0, 0, 0, 0]), "the oldest was given up"
    assert job.cuda.made <= MOST_EVENTS
    for _ in range(10):  # and events come back
        job.cuda.reached_ms = job.cuda.launched_ms
        job.step()
    job.log.close()
    assert job.logged()[-2][0] & DEVICE


def has_times(job) -> list[bool]:
    return [bool(flags & DEVICE) for flags, _ in job.logged()]


def test_a_step_of_too_many_parts_has_no_times(job):
    job.cuda.reached_ms = 10_000
    job.step()
    for _ in range(MOST_MARKS):
        job.log.mark("forward")
    job.step()
    job.step()
    assert has_times(job) == [False, False, True]


def test_nothing_is_asked_while_a_graph_is_captured_in_another_thread(job, monkeypatch):
    job.step()
    job.step()
    job.cuda.reached_ms = 10_000
    job.device.capture_begins()
    with monkeypatch.context() as patch:
        for name in ("record", "query", "elapsed_time"):  # whoever calls one fails, and is switched off
            patch.setattr(job.cuda.Event, name, None)
        job.step()
    job.device.capture_ends()
    job.step()
    job.step()
    assert not job.device.off
    # the second step was done before, and is read after; of the others the last alone has both its ends
    assert has_times(job) == [False, True, False, False, True]


def test_nothing_is_recorded_into_a_capture_of_this_thread(job):
    job.cuda.reached_ms = 10_000
    job.step()
    job.cuda.capturing = True
    job.step()
    job.cuda.capturing = False
    job.step()
    job.step()
    assert not job.cuda.asked_in_capture
    assert not job.device.off
    assert has_times(job) == [False, False, False, True]


def test_cuda_is_not_initialised(job):
    job.cuda.initialised = False
    job.step()
    job.step()
    assert job.cuda.made == 0
    assert [flags & DEVICE for flags, _ in job.logged()] == [0, 0]


def test_recorded_steps_are_left_alone(job):
    job.step()
    job.step(recorded=True)  # the window opens in it
    made = job.cuda.launched_ms
    job.step(recorded=True)
    job.step()
    job.cuda.reached_ms = made + 1000
    job.step()
    flags = [flags & (DEVICE | RECORDED) for flags, _ in job.logged()]
    assert flags == [0, DEVICE | RECORDED, RECORDED, 0, DEVICE]


@pytest.mark.parametrize("after", [1, 2])
def test_an_error_switches_it_off_and_the_log_goes_on(job, after):
    for _ in range(after):
        job.step()
    job.cuda.error = RuntimeError("CUDA error: device-side assert triggered")
    job.step()
    job.cuda.error = None
    job.step()
    assert job.device.off
    found = job.logged()
    assert len(found) == after + 2
    assert not any(flags & DEVICE for flags, _ in found)
