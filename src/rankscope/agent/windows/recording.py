"""One window of one rank: its capture, its record, and every way in which it can end."""

from __future__ import annotations

import contextlib
import math
import platform
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from rankscope.agent.backends.base import Capture
from rankscope.agent.backends.memory_history import MemoryHistory
from rankscope.agent.process.exit import Settler
from rankscope.agent.process.guard import keep_message
from rankscope.agent.steps.cpu_time import CpuTimes
from rankscope.records.codec import to_json
from rankscope.records.rank import ClockSample, RankRecord, RankStatus, StepTimes
from rankscope.records.spec import AgentSpec, Window
from rankscope.rundir.files import replace_text
from rankscope.rundir.spool import Spool
from rankscope.statistics.step_time import usual_step_ms

__all__ = ["Recording", "device_name", "device_uuid", "new_record"]

_LONGEST_S = 600.0
_LONGER_THAN_USUAL = 4.0
"""A window is recorded for at most ``_LONGEST_S`` seconds, or for ``_LONGER_THAN_USUAL`` times the usual time of its
steps if that is longer. Its events stay in the memory of the training process, and steps may stop: an evaluation takes
an hour."""


_CALLS_END_WITHIN_S = 10.0
"""How long asynchronous collectives are waited for where a window ends early, in seconds; the same limit as for the
device."""
_NEXT_WINDOW_WAITS_S = 1.0
"""The same limit if the next scheduled window is due. On a busy machine, a gloo thread may be runnable at the end of
each of many steps. A rank on which this happens would miss a window that the others record."""


def new_record(process: RankRecord, window: Window, planned: Window | None) -> RankRecord:
    """Return the record of a window before it opens."""
    record = RankRecord(**{**vars(process), "status": "ok", "reason": None, "notes": [], "clock": [clock_sample()]})
    record.steps = StepTimes()
    record.window, record.origin = window.number, window.origin
    record.capture, record.capture_reason = window.backend, window.backend_reason
    if planned is not None:
        record.planned_first_step, record.planned_last_step = planned.first, planned.last
    return record


class Recording:
    """Records a window, from the first warm-up step to the record that announces the trace.

    Args:
        window: the steps.
        record: the record as far as it is known.
        spool: where files are left.
        spec: specification of the run.
        history: history of CUDA memory, if it is to be recorded.
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
        self.cpu = CpuTimes()
        self._spool = spool
        self._spec = spec
        self._history = history
        self._settler: Settler | None = None
        self._ends_s = math.inf
        self._limit_s = 0.0

    @property
    def started(self) -> bool:
        """Whether steps are being recorded, after the warm-up."""
        return self.capture is not None and self.capture.recording

    def open(self, make: Callable[[], Capture], before_ms: list[float]) -> bool:
        """Begin the warm-up and return whether it has begun; if not, the record states the reason.

        Args:
            make: makes the capture.
            before_ms: times of the steps before, in ms.
        """
        begun = time.perf_counter_ns()
        self.record.steps.before_ms = before_ms
        try:
            # It is known before it is prepared, because the watch on the script's profilers sees the preparation.
            self.capture = capture = make()
            capture.prepare()
        except Exception as error:  # a profiler that cannot start must not end the job
            self.give_up(f"the profiler did not start: {error or repr(error)}")
            return False
        self._settler = Settler(capture.device)
        self.record.capture = capture.name
        self.record.steps.open_ms = (time.perf_counter_ns() - begun) / 1e6
        return True

    def start(self, completed: int, confirmed: bool | None) -> None:
        """Begin to record with step ``completed``."""
        record, capture = self.record, self.capture
        if capture is None:
            return
        record.first_step = completed
        record.agreed = None if confirmed is None else confirmed and completed == self.window.first
        record.device, record.device_uuid = device_name(capture.device), device_uuid(capture.device)
        if self._history is not None and not self._history.start():
            record.notes.append(f"no memory snapshot: {self._history.reason}")
        record.backend = str(dist.get_backend()) if dist.is_available() and dist.is_initialized() else None
        record.cuda_used = capture.device is not None
        known = ("rank", "world_size", "attempt", "window", "host", "device", "origin", "capture")
        metadata = {"run_id": self._spec.run_id, "torch": record.torch_version}
        usual_s = usual_step_ms(record.steps.before_ms) / 1e3
        steps = self.window.last - self.window.first + 1
        self._limit_s = max(_LONGEST_S, _LONGER_THAN_USUAL * steps * usual_s)
        self._ends_s = time.monotonic() + self._limit_s
        begun = time.perf_counter_ns()
        try:
            capture.start(completed, metadata | {name: getattr(record, name) for name in known})
        except Exception as error:  # as in open
            self.give_up(f"the profiler did not record: {error!r}")
        record.steps.open_ms = (record.steps.open_ms or 0.0) + (time.perf_counter_ns() - begun) / 1e6
        if self.capture is not None:
            self.cpu.begin()

    def took(self, step_ms: float, paused_ms: float) -> None:
        """Add a step of the window: its time, and the garbage collector's share of it, in ms."""
        self.record.steps.inside_ms.append(step_ms)
        self.record.gc_ms = (self.record.gc_ms or 0.0) + paused_ms
        self.cpu.step()

    def has_ended(self, completed: int) -> bool:
        """Return whether all steps of the window are over on the host."""
        return self.started and completed > self.window.last

    def drained(self, *, at_once: bool) -> bool:
        """Return whether they are over on the device too, and nothing else keeps the profiler open; called once a step.

        Args:
            at_once: whether another window is due, which is worth a short wait.
        """
        if self.capture is None:
            return True
        try:
            return self.capture.drained(_NEXT_WINDOW_WAITS_S if at_once else 0.0)
        except Exception:  # a device in error cannot be asked, and the window must not stay open because of that
            return True

    def overdue(self) -> str | None:
        """Return why this window has to end although its steps are not over; None if it has not."""
        if time.monotonic() < self._ends_s:
            return None
        return f"the window had recorded for {self._limit_s:.0f} s, its limit, before its last step was over"

    def close(self, reason: str | None, completed: int, source: str | None, *, leaving: bool = False) -> None:
        """Stop, and announce the result by writing the record.

        Args:
            reason: why the window ends early, or None.
            completed: number of completed steps.
            source: the signal that counted them.
            leaving: whether the process exits, in which case a profiler that cannot end safely is left running.
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
            if reason is not None and not capture.may_end(_CALLS_END_WITHIN_S) and leaving:
                raise TimeoutError("asynchronous collectives that it had recorded did not end; a peer may be gone")
            record.trace = capture.stop(self._spool.trace(record.attempt, self.window.number, record.rank))
        except Exception as error:  # the record states it
            record.status = "missing"
            record.reason = f"{reason + '; ' if reason else ''}no trace: {error}"
        self._keep_history()
        capture = None  # frees what was recorded, within the measured time
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

    def give_up(self, reason: str, *, status: RankStatus = "missing") -> None:
        """Give up the window; the record states the reason."""
        self.record.status, self.record.reason = status, reason
        self.capture = None
        self._finish()

    def cancel(self, reason: str) -> None:
        """End during the warm-up."""
        if self.capture is not None:
            try:
                self.capture.cancel()
            except Exception as error:  # the record states it
                reason = f"{reason}; {error}"
        self.give_up(reason)

    def _finish(self) -> None:
        if self._settler is not None:
            self._settler.dismiss()
            self._settler = None
        record = self.record
        record.threads = self.cpu.end()
        path = self._spool.record(record.attempt, self.window.number, record.rank)
        try:
            replace_text(path, to_json(record))
        except OSError as error:  # on a full disk, the trace is removed to make room for a record that says so
            self._drop_trace(f"the trace was dropped, since its record could not be written: {error}")
            with contextlib.suppress(OSError):
                replace_text(path, to_json(record))

    def _drop_trace(self, reason: str) -> None:
        record = self.record
        keep_message(f"window {self.window.number}: {reason}")
        for name in (record.trace, record.snapshot):
            if name is not None:
                with contextlib.suppress(OSError):
                    (self._spool.path / name).unlink()
        record.trace = record.snapshot = None
        record.status, record.reason = "missing", reason


def device_name(device: str | None) -> str:
    """Return the name of a device for the report."""
    if device is None:
        return f"cpu ({platform.machine()})"
    return str(getattr(torch, device).get_device_name())


def device_uuid(device: str | None) -> str | None:
    """Return the identifier of this device among those of its host, by which health samples are assigned to it."""
    if device != "cuda":
        return None
    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip is not None:
        return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    return str(properties.uuid)


def clock_sample() -> ClockSample:
    """Sample both clocks of this host."""
    return ClockSample(realtime_ns=time.time_ns(), monotonic_ns=time.monotonic_ns())
