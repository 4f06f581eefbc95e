"""Backend ``inline``: torch.profiler, started and stopped in the training thread.

It records operators of this thread and of threads that work for it (autograd), so no other thread that runs operators
is affected when recording ends. Where events end on other threads nevertheless, :mod:`.outstanding` and
:mod:`.open_ranges` make sure that they end first. The profiler must be stopped in the thread that started it, so the
cost of stop and export falls on the training thread. Everything after that (compression, checks, the shared file
system) is done by the node helper.

Libkineto can also record in threads of its own, which costs the training thread little (KINETO_USE_DAEMON). This is not
used: it records the operators of all threads and reads its lists of them while threads still write to them, which has
ended jobs by SIGSEGV, and rankscope cannot make all other threads wait.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import _disable_profiler, _enable_record_function, _profiler_enabled
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerActivity
from torch.profiler.profiler import _KinetoProfile

from rankscope.agent.backends.base import StepMarks, device_in_use
from rankscope.agent.backends.call_notes import KEY, CallNotes
from rankscope.agent.backends.open_ranges import OpenRanges
from rankscope.agent.backends.outstanding import OutstandingCalls
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.agent.process.libkineto_log import silent_libkineto
from rankscope.agent.process.safe_point import in_backward
from rankscope.records.spec import CaptureSpec

__all__ = ["InlineCapture"]

_POLL_S = 0.01


class _Profile(_KinetoProfile):
    """``prepare_trace`` without its import of torch._inductor, which costs a training step 2 to 9 s.

    Upstream imports it to find out whether inductor uses CUDA graphs. If it was not imported yet, inductor does not.
    Some versions also warn, once in a process, that acc_events is off: the script's own profiler has to be the one that
    does.
    """

    def prepare_trace(self) -> None:
        inductor = sys.modules.get("torch._inductor.config")
        if inductor is not None:
            self.has_cudagraphs = inductor.triton.cudagraphs
        self.profiler = autograd_profiler.profile(
            use_cpu=ProfilerActivity.CPU in self.activities,
            use_device=self.use_device,
            record_shapes=self.record_shapes,
            with_flops=self.with_flops,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_modules=self.with_modules,
            use_kineto=True,
            experimental_config=self.experimental_config,
        )
        self.profiler._prepare_trace()  # type: ignore[no-untyped-call]  # noqa: SLF001 - as upstream does


class InlineCapture:
    """See :class:`rankscope.agent.backends.base.Capture`."""

    name = "inline"

    def __init__(self, spec: CaptureSpec, detaching: CuptiTeardown) -> None:
        self.device = device_in_use()
        self._profile = _Profile(
            activities=self._activities(spec),
            record_shapes=spec.record_shapes,
            profile_memory=spec.profile_memory,
            with_stack=spec.with_stack,
            with_flops=spec.with_flops,
            with_modules=spec.with_modules,
            experimental_config=_light_config(spec),
        )
        self._marks = StepMarks()
        self._ranges = OpenRanges()
        self._notes = CallNotes()
        self._calls = OutstandingCalls(self._notes.made)
        self._detaching = detaching
        self._steps_after: int | None = None
        self.recording = False

    def _activities(self, spec: CaptureSpec) -> list[ProfilerActivity]:
        wanted = {"cpu", self.device} if "auto" in spec.activities else {name.lower() for name in spec.activities}
        names = {"cpu": ProfilerActivity.CPU, "cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}
        if self.device is None:
            wanted &= {"cpu"}  # requesting a device that this process does not use would initialise it
        return [names[name] for name in ("cpu", "cuda", "xpu") if name in wanted] or [ProfilerActivity.CPU]

    def owns(self, profile: object) -> bool:
        """See :class:`Capture`."""
        return profile is self._profile.profiler

    def prepare(self) -> None:
        """See :class:`Capture`."""
        self._detaching.decide(self.device)
        with self._detaching.variable_set(), silent_libkineto():
            self._profile.prepare_trace()

    def start(self, step: int, metadata: dict[str, Any]) -> None:
        """See :class:`Capture`."""
        with self._detaching.variable_set(), silent_libkineto():
            self._profile.start_trace()
        self.recording = True
        try:
            self._notes.begin()
            self._ranges.watch()
            self._calls.watch()
            self._profile.add_metadata_json("rankscope", json.dumps(metadata))
            self.mark(step)
        except Exception:  # otherwise the profiler would continue to record
            self._stop()
            raise

    def mark(self, step: int) -> None:
        """See :class:`Capture`."""
        self._calls.step()
        self._marks.begin(step)

    def drained(self, within_s: float = 0.0) -> bool:
        """See :class:`Capture`. Stopping waits for the device in any case. If calls may complete on other threads,
        recording stops now, and the profiler ends in a later step, when they have completed."""
        if self._steps_after is None:
            self._marks.end()
            self._tell_of_calls()
            if not self._calls.possible():
                return True
            self._pause()
            return within_s > 0 and self.may_end(within_s)
        self._steps_after += 1
        return self._calls.ended(self._steps_after) or (within_s > 0 and self.may_end(within_s))

    def _tell_of_calls(self) -> None:
        """Store the calls in the trace. Only done when a window ends regularly: a job that is failing is not
        queried."""
        with contextlib.suppress(Exception):
            metadata = self._notes.as_metadata()
            if metadata is not None:
                self._profile.add_metadata_json(KEY, metadata)

    def _pause(self) -> None:
        """Record no further event of this thread and of the threads that work for it."""
        self._steps_after = 0
        self._marks.end()
        self._ranges.end()
        self._calls.unwatch()
        _enable_record_function(False)

    def stop(self, target: Path) -> str:
        """Stop, which waits for the device, and write Kineto's JSON. The native export can write a result only once.

        Raises:
            RuntimeError: there is no result; the native export without a result would end the process.
            OSError: nothing was written (upstream reports no error for, say, a full disk).
        """
        self._stop()
        result = self._profile.profiler.kineto_results if self._profile.profiler is not None else None
        if result is None or result.trace_start_ns() <= 0:
            raise RuntimeError("torch.profiler had no result; something else in this process has ended its recording")
        with silent_libkineto():
            self._profile.export_chrome_trace(str(target))
        if not target.exists() or target.stat().st_size == 0:
            raise OSError(f"torch.profiler wrote nothing to {target}")
        return target.name

    def _stop(self) -> None:
        if not _profiler_enabled():
            self._forget()
            raise RuntimeError("torch.profiler is not on in this thread any more, what it recorded is lost")
        if in_backward() and self.device is not None:  # threads of autograd may be recording
            self._forget()
            raise RuntimeError("the process was ended inside a backward, in which no window can be closed")
        if self._steps_after is None:
            self._pause()
        try:
            with self._detaching.variable_set(), silent_libkineto():
                try:
                    self._profile.stop_trace()
                finally:
                    # Upstream waits for the device first; if that fails, its recording continues.
                    if _profiler_enabled():
                        with contextlib.suppress(Exception):
                            _disable_profiler()
        finally:
            self.recording = False
            _enable_record_function(True)
            self._ranges.renew()
            self._detaching.window_ended()

    def may_end(self, within_s: float) -> bool:
        """See :class:`Capture`. Waits for the calls that this window has recorded."""
        if self._steps_after is None:
            self._pause()
        if not self._calls.possible():
            return True
        pause, deadline, steps = threading.Event(), time.monotonic() + within_s, self._steps_after or 0
        while not self._calls.ended(steps):
            if time.monotonic() >= deadline:
                return False
            pause.wait(_POLL_S)  # other threads run meanwhile
            steps += 1
        return True

    def _forget(self) -> None:
        """Leave the profiler as it is, and undo all other changes."""
        self._marks.end()
        self._ranges.end()
        self._ranges.renew()
        self._calls.unwatch()
        self.recording = False
        self._detaching.window_ended()

    def leave(self) -> None:
        """See :class:`Capture`."""
        self._ranges.end(ended=False)
        self._calls.unwatch()
        if _profiler_enabled():
            _enable_record_function(False)

    def cancel(self) -> None:
        """See :class:`Capture`. A prepared profiler can only be stopped after it was started; its result is dropped."""
        if in_backward():  # the process ends inside one
            self._forget()
            return
        if not self.recording:
            with self._detaching.variable_set(), silent_libkineto():
                self._profile.start_trace()
        self._stop()


def _light_config(spec: CaptureSpec) -> Any:
    """``trace_only`` (torch 2.13) avoids building Python event objects, which are not used here, in stop."""
    try:
        return torch._C._profiler._ExperimentalConfig(trace_only=not spec.with_stack)  # noqa: SLF001 - no public name
    except TypeError:
        return None
