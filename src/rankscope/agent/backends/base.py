"""What every way to record a window has in common, and which one a window gets."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Protocol

import torch

from rankscope.records.rank import OWN_STEP_MARK
from rankscope.records.spec import CaptureSpec

__all__ = ["Capture", "DeviceTail", "StepMarks", "detailed", "device_in_use"]


_autograd: Any = torch.autograd


class Capture(Protocol):
    """One window: ``prepare``, ``start``, ``mark`` at every step, then ``stop``; or ``cancel`` before it records."""

    name: str
    """The backend, for the record."""
    device: str | None
    """``cuda``, ``xpu``, or None on a CPU."""
    recording: bool

    def prepare(self) -> None:
        """Begin the warm-up: what is seen is discarded."""

    def start(self, step: int, metadata: dict[str, Any]) -> None:
        """Begin to record, with step ``step`` as the first."""

    def mark(self, step: int) -> None:
        """Step ``step`` begins."""

    def drained(self, within_s: float = 0.0) -> bool:
        """The step that was marked last has ended, on the host; has it on the device?

        Asked at the end of each further step, which is recorded but not marked, until it is true.

        Args:
            within_s: where threads of this process have to end something first, to wait for them at most so long.
        """

    def may_end(self, within_s: float) -> bool:
        """Recording has to end before its time. May it, without harm to the process? Waits at most so long until so."""

    def stop(self, target: Path) -> str | None:
        """End recording.

        Returns:
            The name of the trace in the folder of ``target``, complete now or soon; None when another tool holds it.

        Raises:
            OSError: nothing was or will be written.
        """

    def cancel(self) -> None:
        """Leave the warm-up."""

    def leave(self) -> None:
        """Note nothing more in this thread and call nothing of libkineto's: this process was forked inside the window,
        or another profiler has libkineto."""

    def owns(self, profile: object) -> bool:
        """Is this ``torch.autograd.profiler.profile`` ours?"""


class StepMarks:
    """``ProfilerStep#N`` ranges, as torch.profiler names the steps of its schedule, for all tools that read them.

    A profiler of the script's own writes the same ranges in every step, also while it rests. So ours hold a range that
    nobody else writes.

    Begun and ended by functions that are no operators: those of ``record_function`` are, so that a dispatch mode or a
    function mode of the script's own would see and count them.
    """

    def __init__(self) -> None:
        self._ranges: list[Any] = []

    def begin(self, step: int) -> None:
        """End the range that is open and open that of ``step``."""
        self.end()
        for name in (f"ProfilerStep#{step}", f"{OWN_STEP_MARK}{step}"):
            self._ranges.append(_autograd._record_function_with_args_enter(name))  # noqa: SLF001

    def end(self) -> None:
        """Close the open range, if one is."""
        while self._ranges:
            _autograd._record_function_with_args_exit(self._ranges.pop())  # noqa: SLF001 - no public name, as above


_MOST_TAIL_STEPS = 32
"""Steps after which the device is taken to be done: it is at most some thousand launches behind its host."""


class DeviceTail:
    """Says when a device has finished what was launched before the first call, without waiting for it."""

    def __init__(self, device: str | None) -> None:
        self._device = getattr(torch, device) if device is not None else None
        self._event: Any = None
        self._asked = 0

    def is_over(self) -> bool:
        """In the training thread, whose current stream is asked. No step ends while it is captured. True also when it
        was asked for so many steps that it should be."""
        self._asked += 1
        if self._device is None or self._asked > _MOST_TAIL_STEPS:
            return True
        if self._event is None:
            self._event = self._device.Event()
            self._event.record()
        return bool(self._event.query())


def device_in_use() -> str | None:
    """``cuda`` (ROCm too) or ``xpu`` when this process has used it. Never initialises a device.

    Nor is the driver asked before that: what counts devices starts it, and from then on CUDA_VISIBLE_DEVICES is not
    read any more, and no forked child can use a device.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "cuda"
    if hasattr(torch, "xpu") and torch.xpu.is_initialized():  # type: ignore[no-untyped-call]
        return "xpu"
    return None


def detailed(spec: CaptureSpec, detail: str) -> CaptureSpec:
    """The configuration with what a request asked for added to it."""
    added = {
        "shapes": {"record_shapes": True},
        "stacks": {"record_shapes": True, "with_stack": True},
        "memory": {"profile_memory": True, "memory_snapshot": True},
    }
    return dataclasses.replace(spec, **added.get(detail, {}))  # type: ignore[arg-type]
