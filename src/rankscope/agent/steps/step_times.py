"""How long steps take and what they spend it on: the log of all steps, and the pace by which windows are planned."""

from __future__ import annotations

from pathlib import Path

import torch

from rankscope.agent.process.training_thread import TrainingThread
from rankscope.agent.steps.device_times import DeviceTimes
from rankscope.agent.steps.gc_pauses import GcPauses
from rankscope.agent.steps.step_log import StepLog
from rankscope.step_time import Pace

__all__ = ["StepTimes"]


class StepTimes:
    """Of one rank. What is seen before it has begun is left out.

    Args:
        thread: the one that trains: its own clock is read, and the parts of a step are seen in it.
    """

    def __init__(self, thread: TrainingThread) -> None:
        self.pace = Pace()
        self._thread = thread
        self._pauses = GcPauses()
        self._log: StepLog | None = None
        self._device = DeviceTimes(torch.cuda)

    @property
    def begun(self) -> bool:
        """It is known which rank this is."""
        return self._log is not None

    @property
    def part(self) -> str:
        """The part of a step in which the training thread is; empty where none is known."""
        return self._log.phases.now if self._log is not None else ""

    def begin(self, path: Path, *, device: bool = False) -> None:
        """Log into this file, with the device's own times where they are wanted."""
        self._log = StepLog(path, self._device if device else None)
        self._pauses.start()

    def close(self) -> None:
        """The process ends."""
        if self._log is not None:
            self._log.close()

    def fetched(self, spent_ns: int) -> None:
        """So long was spent in the data loader."""
        if self._log is not None:
            self._log.input_ns += spent_ns

    def phase(self, name: str) -> None:
        """A part of the step begins, in this thread."""
        if self._log is not None and self._thread.is_this():
            self._log.mark(name)

    def graph_begins(self) -> None:
        """A CUDA graph is about to be captured."""
        self._device.capture_begins()

    def graph_ends(self) -> None:
        """The capture is over."""
        self._device.capture_ends()

    def happened(self, flag: int) -> None:
        """Something is known of this step: a flag of :mod:`rankscope.records.running.step_log`."""
        if self._log is not None:
            self._log.flags |= flag

    def step(self, *, recorded: bool) -> tuple[float, float]:
        """Log that a step has ended. How long it took and what of it the garbage collector took, ms; 0 of the first."""
        if self._log is None:
            return 0.0, 0.0
        if self._thread.is_this():
            self._log.clock.follow()
        paused_ns = sum(self._pauses.take().ns)
        return self._log.step(recorded, paused_ns) / 1e6, paused_ns / 1e6
