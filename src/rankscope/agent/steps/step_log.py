"""Log of all steps of a rank, including those outside of windows: one entry each, in a ring that the node helper reads.

The log is written with ``pwrite`` and is not mapped. Storing to a mapped page when the disk is full does not return an
error but raises a signal that ends the process, and reserving the blocks beforehand prevents that only on file systems
that write in place. ``pwrite`` returns an error, and the data that it has written survives any end of this process.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from rankscope.agent.process.descriptors import close_own, file_of
from rankscope.agent.steps.device_times import DeviceTimes, Marks
from rankscope.agent.steps.phases import Phases
from rankscope.agent.steps.thread_clock import ThreadClock
from rankscope.records.running.step_log import (
    DEVICE,
    EVALUATION,
    FORWARD_CALLS,
    RECORDED,
    STEP_LOG_CAPACITY,
    STEP_LOG_ENTRY,
    STEP_LOG_HEADER,
    STEP_LOG_MAGIC,
    STEP_LOG_VERSION,
    WRAPPED,
)

__all__ = ["StepLog"]

_LARGEST = 2**32 - 1
_NONE = (0, 0, 0, 0)
_MOST_WAITING = 64
"""Largest number of steps that wait for their device times."""


@dataclass(slots=True)
class _Waiting:
    """A step that has ended on the host but possibly not yet on the device."""

    spent: tuple[int, ...]
    """Durations in nanoseconds, in the order of the log's columns up to those of the device."""
    flags: int
    end_ns: int
    marks: Marks | None


class StepLog:
    """Writes one entry per step. When the disk is full it stops writing, and continues to measure time.

    Args:
        path: created, or emptied if it exists.
        device: if device times are wanted. A step is then logged when the device has reached its end, some steps later.
        before: number of steps that were counted before the log could begin, because it was not known yet which rank
            this is, or by which signal to count. They are in the log as lost steps.
    """

    def __init__(self, path: Path, device: DeviceTimes | None = None, before: int = 0) -> None:
        self._file: int | None = None
        self._own = (-1, -1)
        self.error: str | None = None
        """Why steps are not logged (any more); None if they are."""
        self._count = before
        self._last: int | None = None
        self.input_ns = 0
        """Time in the data loader since the step began."""
        self.flags = 0
        """Flags of this step so far, see :mod:`rankscope.records.running.step_log`."""
        self.device = device
        self._waiting: deque[_Waiting] = deque()
        self.phases = Phases(device)
        self.clock = ThreadClock()
        self._ran, self._held, self._met = [0, 0], [0, 0], False
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            self._own = file_of(self._file)
            self._write(_header(0), 0)
        except OSError as error:
            self._give_up(error)

    def mark(self, phase: str) -> None:
        """Note that a part of the step begins, or a property of it; see ``Watch.phase``. Called in the training
        thread."""
        if phase == "forward":
            self.phases.forward()
            self.flags |= WRAPPED
        elif phase == "backward":
            self.phases.backward()
            self._count_until(0)
            self._met = True
        elif phase == "backward_ended":
            self.phases.backward_ended()
            self._count_until(1)
        else:
            self.flags |= EVALUATION if phase == "evaluation" else FORWARD_CALLS

    @property
    def steps(self) -> int:
        """Number of steps that have ended."""
        return self._count + len(self._waiting)

    def step(self, recorded: bool, paused_ns: int) -> int:
        """Log that a step has ended.

        Args:
            recorded: whether it was inside a window, warm-up included.
            paused_ns: time of it that the garbage collector took.

        Returns:
            Its duration in nanoseconds; 0 for the first step, whose begin is unknown.
        """
        now = time.perf_counter_ns()
        elapsed = now - self._last if self._last is not None else 0
        marks = self.phases.device_step(recorded=recorded) if self.device is not None else None
        parts = self.phases.take(now)
        first, self._last = self._last is None, now
        if self._file is not None:
            if not self._met:
                self._count_until(0)
            spent = (elapsed, self.input_ns, paused_ns, *(_NONE if first else parts), *self._counted())
            flags = self.flags | RECORDED if recorded else self.flags
            if marks is None and not self._waiting:
                self._put(spent, flags, time.time_ns())
            else:
                self._waiting.append(_Waiting(spent, flags, time.time_ns(), marks))
                self._put_what_is_known()
        self.input_ns = self.flags = 0
        self._ran, self._held, self._met = [0, 0], [0, 0], False
        return elapsed

    def close(self) -> None:
        """Log the steps whose device times are not known yet without them, because the process is about to exit."""
        while self._waiting:
            entry = self._waiting.popleft()
            self._put(entry.spent, entry.flags, entry.end_ns)

    def _put_what_is_known(self) -> None:
        """Log waiting steps in order, each when the device has reached its end. A step that the device does not reach
        for long is logged without device times."""
        while self._waiting and self.device is not None:
            entry, device = self._waiting[0], _NONE
            if entry.marks is not None:
                found = self.device.read(entry.marks)
                if found is None and not self.device.off and len(self._waiting) <= _MOST_WAITING:
                    return
                self.device.release(entry.marks)
                if found is not None:
                    device, entry.flags = (found[0], found[1], found[2], found[3]), entry.flags | DEVICE
            self._waiting.popleft()
            self._put(entry.spent, entry.flags, entry.end_ns, device)

    def _put(self, spent: tuple[int, ...], flags: int, end_ns: int, device: tuple[int, int, int, int] = _NONE) -> None:
        slot = STEP_LOG_HEADER.size + (self._count % STEP_LOG_CAPACITY) * STEP_LOG_ENTRY.size
        try:
            self._check()
            self._write(_packed((*spent, *device), flags, end_ns), slot)
            self._write(_header(self._count + 1), 0)
        except OSError as error:
            self._give_up(error)
        self._count += 1

    def _count_until(self, part: int) -> None:
        """Assign what the thread's clock has counted since the last call to a part of the step: 1 is the backward, 0
        the rest."""
        ran, held = self.clock.take()
        self._ran[part] += ran
        self._held[part] += held

    def _counted(self) -> tuple[int, ...]:
        return sum(self._ran), sum(self._held), self._ran[1], self._held[1]

    def _check(self) -> None:
        if self._file is not None and file_of(self._file) != self._own:
            raise OSError("the script has closed its descriptor")

    def _write(self, data: bytes, position: int) -> None:
        if self._file is None:
            return
        if os.pwrite(self._file, data, position) != len(data):
            raise OSError("the disk took only a part of an entry")

    def _give_up(self, error: OSError) -> None:
        self.error = f"steps from {self._count} on are not in the step log: {error.strerror or error}"
        file, self._file = self._file, None
        if file is not None:
            close_own(file, self._own)


def _packed(spent_ns: tuple[int, ...], flags: int, end_ns: int) -> bytes:
    microseconds = [value // 1000 for value in spent_ns]
    if max(microseconds) > _LARGEST:
        microseconds = [min(value, _LARGEST) for value in microseconds]
    return STEP_LOG_ENTRY.pack(*microseconds, 0, 1, flags, 0, 0, end_ns)


def _header(count: int) -> bytes:
    return STEP_LOG_HEADER.pack(STEP_LOG_MAGIC, STEP_LOG_VERSION, STEP_LOG_ENTRY.size, count)
