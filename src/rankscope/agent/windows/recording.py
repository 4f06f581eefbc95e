"""One window of one rank: its capture, its record, and every way it can end."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from rankscope.agent.backends.base import Capture
from rankscope.agent.backends.memory_history import MemoryHistory
from rankscope.agent.process.exit import Settler
from rankscope.records.codec import to_json
from rankscope.records.rank import ClockSample, RankRecord, StepTimes
from rankscope.records.spec import AgentSpec, Window
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool

__all__ = ["Recording", "device_name", "new_record"]

_MOST_TAIL_STEPS = 32
"""A device is some thousand launches behind its host at most."""


def new_record(life: RankRecord, window: Window, planned: Window | None) -> RankRecord:
    """What is known of a window before it opens."""
    record = RankRecord(**{**vars(life), "status": "ok", "reason": None, "notes": [], "clock": [clock_sample()]})
    record.steps = StepTimes()
    record.window, record.origin = window.number, window.origin
    record.capture, record.capture_reason = window.backend, window.backend_reason
    if planned is not None:
        record.planned_first_step, record.planned_last_step = planned.first, planned.last
    return record


class Recording:
    """From the first warm-up step to the record that announces the trace.

    Args:
        window: the steps.
        record: as far as it is known.
        spool: where everything is left.
        spec: of the run.
        history: of CUDA memory, where that is wanted.
    """

    def __init__(
        self,
        window: Window,
        record: RankRecord,
        spool: Spool,
        spec: AgentSpec,
        history: MemoryHistory | None,
    ) -> None:
        self.window = window
        self.record = record
        self.capture: Capture | None = None
        self._spool = spool
        self._spec = spec
        self._history = history
        self._settler: Settler | None = None
        self._tail_steps = 0

    @property
    def started(self) -> bool:
        """Steps are being recorded, not only warmed up for."""
        return self.capture is not None and self.capture.recording

    def open(self, makers: Sequence[Callable[[], Capture]], before_ms: list[float]) -> bool:
        """Begin the warm-up with the first capture that can; when none can, the record says why."""
        begun = time.perf_counter_ns()
        self.record.steps.before_ms = before_ms
        failed = []
        for make in makers:
            try:
                capture = make()
                capture.prepare()
            except Exception as error:  # a profiler that cannot start must not end the job
                failed.append(str(error) or repr(error))
                continue
            self.capture = capture
            self._settler = Settler(capture.device)
            self.record.capture = capture.name
            if failed:
                self.record.capture_reason = failed[0]
            self.record.steps.open_ms = (time.perf_counter_ns() - begun) / 1e6
            return True
        self.give_up(f"the profiler did not start: {'; '.join(failed)}")
        return False

    def start(self, completed: int, confirmed: bool | None) -> None:
        """Step ``completed`` is the first to be recorded."""
        record, capture = self.record, self.capture
        if capture is None:
            return
        record.first_step = completed
        record.agreed = None if confirmed is None else confirmed and completed == self.window.first
        record.device, record.device_uuid = device_name(capture.device), _device_uuid(capture.device)
        if self._history is not None and not self._history.start():
            record.notes.append(f"no memory snapshot: {self._history.reason}")
        record.backend = str(dist.get_backend()) if dist.is_available() and dist.is_initialized() else None
        record.cuda_used = capture.device is not None
        known = ("rank", "world_size", "attempt", "window", "host", "device", "origin", "capture")
        told = {"run_id": self._spec.run_id, "torch": record.torch_version}
        begun = time.perf_counter_ns()
        try:
            capture.start(completed, told | {name: getattr(record, name) for name in known})
        except Exception as error:  # as in open
            self.give_up(f"the profiler did not record: {error!r}")
        record.steps.open_ms = (record.steps.open_ms or 0.0) + (time.perf_counter_ns() - begun) / 1e6

    def has_ended(self, completed: int) -> bool:
        """All its steps are over, on the host."""
        return self.started and completed > self.window.last

    def drained(self) -> bool:
        """They are over on the device too, or that was waited for long enough. To be asked once a step."""
        self._tail_steps += 1
        if self.capture is None or self._tail_steps > _MOST_TAIL_STEPS:
            return True
        try:
            return self.capture.drained()
        except Exception:  # a device in error cannot be asked, and the window must not stay open for it
            return True

    def close(self, reason: str | None, completed: int, source: str | None) -> None:
        """Stop, and announce the result by its record.

        Args:
            reason: why it ends before its time, or None.
            completed: steps completed.
            source: of their count.
        """
        capture, record = self.capture, self.record
        self.capture = None
        if capture is None:
            return
        begun = time.perf_counter_ns()
        record.status, record.reason = "ok" if reason is None else "partial", reason
        record.last_step = min(completed - 1, self.window.last)
        record.steps_counted, record.step_source = completed, source
        record.clock.append(clock_sample())
        try:
            if reason is not None and self._settler is not None and not self._settler.settles(self._spec.exit_grace_s):
                raise TimeoutError("the device did not finish its work; a peer it waits for is gone")
            record.trace = capture.stop(self._spool.trace(record.attempt, self.window.number, record.rank))
        except Exception as error:  # the record tells it
            record.status = "missing"
            record.reason = f"{reason + '; ' if reason else ''}no trace: {error}"
        self._keep_history()
        record.steps.close_ms = (time.perf_counter_ns() - begun) / 1e6
        self._finish()

    def _keep_history(self) -> None:
        history, record = self._history, self.record
        if history is None:
            return
        path = self._spool.snapshot(record.attempt, self.window.number, record.rank)
        if history.dump(path, rank=record.rank, attempt=record.attempt, window=self.window.number):
            record.snapshot = path.name
        history.stop()

    def give_up(self, reason: str) -> None:
        """This window holds nothing; the record says why."""
        self.record.status, self.record.reason = "missing", reason
        self.capture = None
        self._finish()

    def cancel(self, reason: str) -> None:
        """Leave the warm-up."""
        if self.capture is not None:
            self.capture.cancel()
        self.give_up(reason)

    def _finish(self) -> None:
        if self._settler is not None:
            self._settler.dismiss()
            self._settler = None
        record = self.record
        replace_text(self._spool.record(record.attempt, self.window.number, record.rank), to_json(record))


def device_name(device: str | None) -> str:
    """In words, for the report."""
    if device is None:
        return f"cpu ({platform.machine()})"
    return str(getattr(torch, device).get_device_name())


def _device_uuid(device: str | None) -> str | None:
    """What tells this device from the others of its host; how health samples find it."""
    if device != "cuda":
        return None
    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip is not None:
        return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    return str(properties.uuid)


def clock_sample() -> ClockSample:
    """Both clocks of this host, now."""
    return ClockSample(realtime_ns=time.time_ns(), monotonic_ns=time.monotonic_ns())
