"""Interface of all backends that record a window, and helpers that they share."""

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
    """Name of the backend, for the record."""
    device: str | None
    """``cuda``, ``xpu``, or None on a CPU."""
    recording: bool

    def prepare(self) -> None:
        """Begin the warm-up; its events are discarded."""

    def start(self, step: int, metadata: dict[str, Any]) -> None:
        """Start recording, with step ``step`` as the first."""

    def mark(self, step: int) -> None:
        """Mark the begin of step ``step``."""

    def drained(self, within_s: float = 0.0) -> bool:
        """Return whether the last marked step has ended on the device too; on the host it has.

        Called at the end of each further step, which is recorded but not marked, until it returns True.

        Args:
            within_s: longest wait, in seconds, for other threads of this process that have to finish first.
        """

    def may_end(self, within_s: float) -> bool:
        """Return whether recording can end early without harm to the process. Waits at most ``within_s`` seconds for
        that."""

    def stop(self, target: Path) -> str | None:
        """End recording.

        Returns:
            The name of the trace in the folder of ``target``, complete now or soon; None if another tool writes it.

        Raises:
            OSError: nothing was or will be written.
        """

    def cancel(self) -> None:
        """End the warm-up without recording."""

    def leave(self) -> None:
        """Record nothing more in this thread and call no function of libkineto: this process was forked inside the
        window, or another profiler uses libkineto."""

    def owns(self, profile: object) -> bool:
        """Return whether this ``torch.autograd.profiler.profile`` belongs to the backend."""


class StepMarks:
    """``ProfilerStep#N`` ranges, as torch.profiler names the steps of its schedule, for all tools that read them.

    A profiler of the script writes the same ranges in every step, even while its schedule does not record. So each of
    ours contains a further range with a name that only rankscope writes.

    The ranges are begun and ended by functions that are not operators. Those of ``record_function`` are operators,
    which a dispatch mode or function mode of the script would see and count.
    """

    def __init__(self) -> None:
        self._ranges: list[Any] = []

    def begin(self, step: int) -> None:
        """End the open range and begin that of ``step``."""
        self.end()
        for name in (f"ProfilerStep#{step}", f"{OWN_STEP_MARK}{step}"):
            self._ranges.append(_autograd._record_function_with_args_enter(name))  # noqa: SLF001

    def end(self) -> None:
        """End the open range, if any."""
        while self._ranges:
            _autograd._record_function_with_args_exit(self._ranges.pop())  # noqa: SLF001 - no public name, as above


_MOST_TAIL_STEPS = 32
"""Number of steps after which the device is assumed to have finished: it is at most some thousand launches behind its
host."""


class DeviceTail:
    """Checks, without waiting, whether a device has finished what was launched before the first call."""

    def __init__(self, device: str | None) -> None:
        self._device = getattr(torch, device) if device is not None else None
        self._event: Any = None
        self._asked = 0

    def is_over(self) -> bool:
        """Return whether it has finished, or must have after so many calls. Called in the training thread, whose
        current stream is queried. No graph is being captured then (a query would be an error), since no step ends
        during a capture."""
        self._asked += 1
        if self._device is None or self._asked > _MOST_TAIL_STEPS:
            return True
        if self._event is None:
            self._event = self._device.Event()
            self._event.record()
        return bool(self._event.query())


def device_in_use() -> str | None:
    """Return ``cuda`` (ROCm too) or ``xpu`` if this process has used it. Never initialises a device.

    The driver is not called before the process uses it either: counting devices initialises it, and from then on
    CUDA_VISIBLE_DEVICES is ignored and forked children cannot use a device.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "cuda"
    if hasattr(torch, "xpu") and torch.xpu.is_initialized():  # type: ignore[no-untyped-call]
        return "xpu"
    return None


def detailed(spec: CaptureSpec, detail: str) -> CaptureSpec:
    """Return the configuration with the additional detail that a request asked for."""
    added = {
        "shapes": {"record_shapes": True},
        "stacks": {"record_shapes": True, "with_stack": True},
        "memory": {"profile_memory": True, "memory_snapshot": True},
    }
    return dataclasses.replace(spec, **added.get(detail, {}))  # type: ignore[arg-type]
