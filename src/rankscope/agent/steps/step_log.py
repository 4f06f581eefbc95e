"""Log of all steps of a rank, including those outside of windows: one entry each, in a ring that the node helper reads.

In a step the training thread only leaves marks: a time and a name. In a step of 20 ms whatever else is done runs with
cold caches, and costs ten times as much as when it is repeated. So entries are made and written together, every half a
second (or once 64 steps have ended), and the counters of the thread's CPU time are read in every step only where steps
are long enough for it, where the machine is busy, or where steps take more or less CPU time than before; else in every
2nd, 4th, 8th or 16th step. :mod:`rankscope.agent.steps.counts` settles the others. A process that is killed loses the
marks that it has not written; one that ends otherwise, or is asked where it is, writes them.

The log is written with ``pwrite`` and is not mapped. Storing to a mapped page when the disk is full does not return an
error but raises a signal that ends the process, and reserving the blocks beforehand prevents that only on file systems
that write in place. ``pwrite`` returns an error, and the data that it has written survives any end of this process.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns, time_ns

from rankscope.agent.process.descriptors import close_own, file_of
from rankscope.agent.steps.counts import Counts
from rankscope.agent.steps.device_times import DeviceTimes, Marks
from rankscope.agent.steps.phases import PARTS, Mark, ended_by, part_after, split
from rankscope.agent.steps.thread_clock import ThreadClock
from rankscope.records.running.step_log import (
    DEVICE,
    EVALUATION,
    FORWARD_CALLS,
    RECORDED,
    STEP_LOG_CAPACITY,
    STEP_LOG_COLUMNS,
    STEP_LOG_ENTRY,
    STEP_LOG_HEADER,
    STEP_LOG_MAGIC,
    STEP_LOG_VERSION,
    WRAPPED,
)

__all__ = ["StepLog"]

_LARGEST = 2**32 - 1
_NONE = (0, 0, 0, 0)
_UNKNOWN = (0,) * len(STEP_LOG_COLUMNS)
_MOST_WAITING = 64
"""Largest number of steps that wait for their device times."""
WRITTEN_EVERY_NS = 500_000_000
"""Longest time for which steps that have ended are not written, at the end of a step. In the beginning it is as long as
the log has lasted, so that of a job that stands still after a few steps some are known."""
_MOST_STEPS = 64
"""Largest number of steps that are not written; with device times a quarter, because each keeps events."""
_MOST_MARKS = 8192
"""Largest number of marks that are kept; of a step with more, later ones are left out."""
READS_SHARE = 0.0005
"""Share of the time that reads of the thread's counters may take while the machine is not busy."""
BUSY = 0.01
"""Share of the time that the thread waited for a CPU, from which on its counters are read in every step. Half of what
counts as contention when the logs are compared."""
UNUSUAL = 0.1
"""Share by which the CPU time of a step may differ from that of the steps before, if that matters for its duration,
without being read in every step. A neighbour on the same physical core makes it 25 to 30 % longer."""
_READS = 3
"""Reads for the counts of one step and its backward: before it, and at both ends of its backward."""
_SELDOM = 16
"""The counters are read in one of so many steps at least."""
_REMEMBERED = 9


@dataclass(slots=True)
class _Ended:
    """A step that has ended on the host but possibly not yet on the device."""

    end: int
    counts: tuple[int, int] | None
    others: tuple[int, int]
    """Nanoseconds in the data loader and in the garbage collector."""
    flags: int
    device: Marks | None
    spent: list[int] = field(default_factory=list)
    """Durations in nanoseconds, in the order of the log's columns."""
    end_ns: int = 0


class StepLog:
    """Writes one entry per step. When the disk is full it stops writing, and continues to measure time.

    Args:
        path: created, or emptied if it exists.
        device: if device times are wanted. A step is then logged when the device has reached its end, some steps later.
        before: number of steps that were counted before the log could begin, because it was not known yet which rank
            this is, or by which signal to count. They are in the log as lost steps.
        noted: called for each step, in order, before it is written: its number, its end, and begin and end of its
            backwards, on the clock of ``perf_counter_ns``.
    """

    def __init__(
        self,
        path: Path,
        device: DeviceTimes | None = None,
        before: int = 0,
        noted: Callable[[int, int, Sequence[tuple[int, int]]], None] = lambda *_: None,
    ) -> None:
        self._file: int | None = None
        self._own = (-1, -1)
        self.error: str | None = None
        """Why steps are not logged (any more); None if they are."""
        self.steps = before
        """Number of steps that have ended."""
        self.input_ns = 0
        """Time in the data loader since the step began."""
        self.flags = 0
        """Flags of this step so far, see :mod:`rankscope.records.running.step_log`."""
        self.device = device
        self.clock = ThreadClock()
        self._noted = noted
        self._most = _MOST_STEPS // 4 if device is not None else _MOST_STEPS
        # Of the training thread
        self._marks: list[Mark | _Ended] = []
        self._last: int | None = None
        self._met = False
        self.every = 1
        """In one of so many steps the counters of the thread are read."""
        self._exact = self._next_exact = True
        self._took_ns = deque[int](maxlen=_REMEMBERED)
        # Of whoever writes
        self._writing = threading.Lock()
        self._written = self._since = self._opened = perf_counter_ns()
        self._pause_ns = 0
        self._count = self._digested = before
        self._counts = Counts(self._since)
        self._is_first = True
        self._ran_ns = deque[int](maxlen=_REMEMBERED)
        self._waiting: deque[_Ended] = deque()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            self._own = file_of(self._file)
            self._write(_header(0), 0)
        except OSError as error:
            self._give_up(error)

    # ------------------------------------------------------------ in every step, in the training thread

    @property
    def part(self) -> str:
        """The part of a step that the training thread is in."""
        marks = self._marks[-1:]
        return PARTS[part_after(marks[0][0] if marks and isinstance(marks[0], tuple) else "")]

    def mark(self, phase: str) -> None:
        """Note that a part of the step begins, or a property of it; see ``Watch.phase``. Called in the training
        thread."""
        now, counts = perf_counter_ns(), None
        if phase == "backward":
            self._met = True
            counts = self._read() if self._exact else None
        elif phase == "backward_ended":
            if self._exact or self._next_exact:
                counts = self._read()
        elif phase == "forward":
            self.flags |= WRAPPED
        else:
            self.flags |= EVALUATION if phase == "evaluation" else FORWARD_CALLS
            return
        if self.device is not None:
            self.device.ended(ended_by(phase, PARTS.index(self.part)))
        if len(self._marks) < _MOST_MARKS:
            self._marks.append((phase, now, counts))

    def step(self, recorded: bool, paused_ns: int) -> int:
        """Log that a step has ended.

        Args:
            recorded: whether it was inside a window, warm-up included.
            paused_ns: time of it that the garbage collector took.

        Returns:
            Its duration in nanoseconds; 0 for the first step, whose begin is unknown.
        """
        now = perf_counter_ns()
        elapsed = now - self._last if self._last is not None else 0
        self._last, device = now, None
        self.steps += 1
        if self.device is not None:
            device = self.device.step_ended(PARTS.index(self.part), recorded=recorded)
        if self._file is not None:
            due = (
                now - self._written > self._pause_ns
                or self.steps - self._digested >= self._most
                or len(self._marks) > _MOST_MARKS // 2
            )
            counts = self._read() if due or (not self._met and (self._exact or self._next_exact)) else None
            flags = self.flags | RECORDED if recorded else self.flags
            self._marks.append(_Ended(now, counts, (self.input_ns, paused_ns), flags, device))
            if due:
                self.flush()
        else:
            self._marks.clear()
        self.input_ns = self.flags = 0
        self._exact, self._next_exact, self._met = self._next_exact, (self.steps + 1) % self.every == 0, False
        return elapsed

    def _read(self) -> tuple[int, int] | None:
        begun = perf_counter_ns()
        counts = self.clock.read()
        self._took_ns.append(perf_counter_ns() - begun)
        return counts

    # ------------------------------------------------------------ now and then

    def flush(self) -> None:
        """Write the steps that have ended. Called in any thread: another one may ask where the training thread is."""
        if not self._writing.acquire(blocking=False):
            return
        try:
            self._written = perf_counter_ns()
            self._pause_ns = min(self._written - self._opened, WRITTEN_EVERY_NS)
            self._put_what_is_known(self._digest())
        finally:
            self._writing.release()

    def close(self) -> None:
        """Log the steps whose device times are not known yet without them, because the process is about to exit."""
        self.flush()
        with self._writing:
            self._put(list(self._waiting))
            self._waiting.clear()

    def _digest(self) -> list[_Ended]:
        """Take the marks of the steps that have ended, and return these steps."""
        marks = self._marks[:]
        while marks and not isinstance(marks[-1], _Ended):
            marks.pop()
        del self._marks[: len(marks)]  # the training thread only appends
        if not marks:
            return []
        if isinstance(last := marks[-1], _Ended) and last.counts is None:
            last.counts = self.clock.read()  # so that nothing of these steps remains open
        ahead = time_ns() - perf_counter_ns()  # of CLOCK_REALTIME
        begun, first, own = self._since, self._digested, list[Mark]()
        steps: list[_Ended] = []
        for mark in marks:
            if not isinstance(mark, _Ended):
                own.append(mark)
                continue
            parts, backwards = split(self._since, own, mark.end)
            self._counts.step(self._digested, own, mark.end, mark.counts)
            self._noted(self._digested, mark.end, backwards)
            mark.spent += (
                [0, *mark.others, *_NONE] if self._is_first else [mark.end - self._since, *mark.others, *parts]
            )
            mark.end_ns = mark.end + ahead
            self._since, self._is_first = mark.end, False
            self._digested += 1
            own.clear()
            steps.append(mark)
        ran = held = 0
        for number, step in enumerate(steps, first):
            counts = self._counts.take(number)
            ran, held = ran + counts[0], held + counts[1]
            step.spent += counts
        self._choose(self._since - begun, ran, held, len(steps))
        return steps

    def _choose(self, passed: int, ran: int, held: int, steps: int) -> None:
        """Choose in how many steps the counters of the thread are read from now on.

        Args:
            passed: duration of the last steps in ns.
            ran: CPU time of the thread in them.
            held: time in which it waited for a CPU.
            steps: how many they were.
        """
        self.every = 1
        usual = _middle(self._ran_ns)
        alike = abs(ran / steps - usual) <= max(UNUSUAL * usual, BUSY * passed / steps)
        self._ran_ns.append(ran // steps)
        if held <= BUSY * passed and alike and self._took_ns:
            needed = _READS * _middle(self._took_ns) * steps / (READS_SHARE * max(passed, 1))
            while self.every < min(needed, _SELDOM):
                self.every *= 2

    def _put_what_is_known(self, ended: list[_Ended]) -> None:
        """Log steps in order, each when the device has reached its end. A step that the device does not reach for long
        is logged without device times."""
        if self.device is None:
            self._put(ended)
            return
        self._waiting.extend(ended)
        known = []
        while self._waiting:
            entry = self._waiting[0]
            if entry.device is not None:
                found = self.device.read(entry.device)
                if found is None and not self.device.off and len(self._waiting) <= _MOST_WAITING:
                    break
                self.device.release(entry.device)
                if found is not None:
                    entry.spent += found
                    entry.flags |= DEVICE
            known.append(self._waiting.popleft())
        self._put(known)

    def _put(self, steps: list[_Ended]) -> None:
        data = [_packed(step) for step in steps]
        try:
            self._check()
            at = self._count
            while data:
                slot = at % STEP_LOG_CAPACITY
                part = data[: STEP_LOG_CAPACITY - slot]
                self._write(b"".join(part), STEP_LOG_HEADER.size + slot * STEP_LOG_ENTRY.size)
                at, data = at + len(part), data[len(part) :]
            if steps:
                self._write(_header(at), 0)
        except OSError as error:
            self._give_up(error)
        self._count += len(steps)

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


def _middle(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2] if values else 0


def _packed(step: _Ended) -> bytes:
    microseconds = [value // 1000 for value in step.spent]
    if max(microseconds) > _LARGEST:
        microseconds = [min(value, _LARGEST) for value in microseconds]
    unknown = _UNKNOWN[len(microseconds) :]
    return STEP_LOG_ENTRY.pack(*microseconds, *unknown, 1, step.flags, 0, 0, step.end_ns)


def _header(count: int) -> bytes:
    return STEP_LOG_HEADER.pack(STEP_LOG_MAGIC, STEP_LOG_VERSION, STEP_LOG_ENTRY.size, count)
