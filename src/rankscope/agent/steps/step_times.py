"""Duration of steps and of their parts: the log of all steps, and the step time by which windows are planned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from rankscope.agent.process.safe_point import in_backward
from rankscope.agent.process.training_thread import TrainingThread
from rankscope.agent.steps.call_times import CallTimes, Recorder
from rankscope.agent.steps.device_times import DeviceTimes, quick_event
from rankscope.agent.steps.gc_pauses import GcPauses
from rankscope.agent.steps.step_log import StepLog
from rankscope.records.running.step_log import ASKED
from rankscope.statistics.step_time import StepTimeEstimate

__all__ = ["StepTimer"]


class StepTimer:
    """Step times of one rank. Events before :meth:`begin` are ignored.

    Args:
        thread: the training thread, whose CPU time is read and in which the parts of a step are observed.
    """

    def __init__(self, thread: TrainingThread) -> None:
        self.step_time = StepTimeEstimate()
        self._thread = thread
        self._pauses = GcPauses()
        self._paused_ns = 0
        self._log: StepLog | None = None
        self._device = DeviceTimes(torch.cuda, quick_event)
        self._calls: CallTimes | None = None
        self.asked = False
        """Whether torch's flight recorder was read in the step that has just ended."""

    @property
    def begun(self) -> bool:
        """Whether :meth:`begin` was called, that is, whether the rank is known."""
        return self._log is not None

    @property
    def part(self) -> str:
        """The part of a step that the training thread is in; empty if unknown."""
        return self._log.part if self._log is not None else ""

    def begin(self, path: Path, *, device: bool = False, before: int = 0) -> None:
        """Log into this file, with device times if wanted. ``before``: number of steps that were counted so far."""
        self._log = StepLog(path, self._device if device else None, before, self._note)
        self._pauses.start()

    def read_calls(self, path: Path, share: float, recorder: Recorder) -> None:
        """Also read when calls are issued, see :class:`CallTimes`; the helper adds it to the log."""
        self._calls = CallTimes(path, share, recorder, self._device.captures)

    def flush(self) -> None:
        """Write the steps that have ended; called in any thread."""
        if self._log is not None:
            self._log.flush()

    def close(self) -> None:
        """Write what is left, because the process is about to exit."""
        if self._log is not None:
            self._log.close()

    def fetched(self, spent_ns: int) -> None:
        """Add time spent in the data loader, in nanoseconds."""
        if self._log is not None:
            self._log.input_ns += spent_ns

    def phase(self, name: str) -> None:
        """Note that a part of the step begins in this thread."""
        if self._log is not None and self._thread.is_this():
            self._log.mark(name)

    def graph_begins(self) -> None:
        """Note that a CUDA graph is about to be captured."""
        self._device.capture_begins()

    def graph_ends(self) -> None:
        """Note that the capture is over."""
        self._device.capture_ends()

    def happened(self, flag: int) -> None:
        """Set a flag of this step, see :mod:`rankscope.records.running.step_log`."""
        if self._log is not None:
            self._log.flags |= flag

    def step(self, *, recorded: bool) -> tuple[float, float]:
        """Log that a step has ended. Return its duration and the garbage collector's share of it, in ms; (0, 0) before
        it begins."""
        log = self._log
        if log is None:
            return 0.0, 0.0
        trains = self._thread.is_this()
        if trains:
            log.clock.follow()
        paused_ns, self._paused_ns = self._pauses.total_ns - self._paused_ns, self._pauses.total_ns
        self.asked = bool(log.flags & ASKED)
        elapsed_ns = log.step(recorded, paused_ns)
        calls = self._calls
        if calls is not None and trains and not recorded and log.steps % calls.every == 0:
            self._read_calls(log, calls)
        return elapsed_ns / 1e6, paused_ns / 1e6

    def _read_calls(self, log: StepLog, calls: CallTimes) -> None:
        """Read the times of calls, if this is a safe point."""
        if calls.off or log.error or in_backward():
            return
        log.flush()  # the steps so far are noted
        if calls.read_if_due():
            log.flags |= ASKED  # of the step that begins here

    def _note(self, number: int, end: int, backwards: Sequence[tuple[int, int]]) -> None:
        if self._calls is not None and not self._calls.off:
            self._calls.note(number, end, backwards)
