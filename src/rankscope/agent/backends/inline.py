"""Backend ``inline``: torch.profiler, started and stopped in the training thread.

Stopping it in another thread records nothing and crashes the export, so the cost of stop and export falls on
the training thread; everything after that (compression, checks, the shared disk) is the node helper's.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerActivity
from torch.profiler.profiler import _KinetoProfile

from rankscope.agent.backends.base import StepMarks, device_in_use
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.records.spec import CaptureSpec

__all__ = ["InlineCapture"]


class _Profile(_KinetoProfile):
    """``prepare_trace`` without its import of torch._inductor, which costs a training step 2 to 9 s.

    Upstream imports it to learn whether inductor uses CUDA graphs; when nobody has imported it, it does not.
    """

    def prepare_trace(self) -> None:
        if "torch._inductor.config" in sys.modules:
            with warnings.catch_warnings():
                # Some versions warn at each window that acc_events is off, which is what we want.
                warnings.simplefilter("ignore")
                super().prepare_trace()
            return
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
        self._detaching = detaching
        self.recording = False

    def _activities(self, spec: CaptureSpec) -> list[ProfilerActivity]:
        wanted = {"cpu", self.device} if "auto" in spec.activities else {name.lower() for name in spec.activities}
        names = {"cpu": ProfilerActivity.CPU, "cuda": ProfilerActivity.CUDA, "xpu": ProfilerActivity.XPU}
        if self.device is None:
            wanted &= {"cpu"}  # asking for a device that this process does not use would initialise it
        return [names[name] for name in ("cpu", "cuda", "xpu") if name in wanted] or [ProfilerActivity.CPU]

    def owns(self, profile: object) -> bool:
        """See :class:`Capture`."""
        return profile is self._profile.profiler

    def prepare(self) -> None:
        """See :class:`Capture`."""
        self._detaching.ask(self.device)
        self._profile.prepare_trace()

    def start(self, step: int, metadata: dict[str, Any]) -> None:
        """See :class:`Capture`."""
        self._profile.start_trace()
        self.recording = True
        self._profile.add_metadata_json("rankscope", json.dumps(metadata))
        self.mark(step)

    def mark(self, step: int) -> None:
        """See :class:`Capture`."""
        self._marks.begin(step)

    def drained(self) -> bool:
        """See :class:`Capture`. Stopping waits for the device anyway."""
        return True

    def stop(self, target: Path) -> str:
        """Stop, which waits for the device, and write Kineto's JSON. The native export can write a result only once.

        Raises:
            OSError: nothing was written (upstream gives no error for, say, a full disk).
        """
        self._stop()
        self._profile.export_chrome_trace(str(target))
        if not target.exists() or target.stat().st_size == 0:
            raise OSError(f"torch.profiler wrote nothing to {target}")
        return target.name

    def _stop(self) -> None:
        self._marks.end()
        self.recording = False
        try:
            self._profile.stop_trace()
        finally:
            self._detaching.told()

    def cancel(self) -> None:
        """See :class:`Capture`. A prepared profiler can only be stopped once started, and its result is dropped."""
        if not self.recording:
            self._profile.start_trace()
        self._stop()


def _light_config(spec: CaptureSpec) -> Any:
    """``trace_only`` (torch 2.13) spares stop the building of Python event objects that nobody asks for."""
    try:
        return torch._C._profiler._ExperimentalConfig(trace_only=not spec.with_stack)  # noqa: SLF001 - no public name
    except TypeError:
        return None
