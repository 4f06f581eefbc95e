"""Backend ``cuda_profiler``: the window is marked for another tool that holds CUPTI.

``nsys profile -c cudaProfilerApi`` records from ``cudaProfilerStart`` to ``cudaProfilerStop``, so it gets the steps
the ranks agreed on, each as an NVTX range.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rankscope import in_job
from rankscope.agent.backends.base import DeviceTail, device_in_use
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.records.spec import CaptureSpec

__all__ = ["CudaProfilerCapture"]


class _Region:
    """A range of the script. It has an id, so that a step may begin or end inside of it."""

    __slots__ = ("_id",)

    def __init__(self, name: str) -> None:
        self._id = torch.cuda.nvtx.range_start(name)

    def close(self) -> None:
        torch.cuda.nvtx.range_end(self._id)


class _Regions:
    """See :class:`rankscope.in_job.Recorder`."""

    def begin(self, name: str) -> _Region:
        return _Region(name)


class CudaProfilerCapture:
    """See :class:`rankscope.agent.backends.base.Capture`."""

    name = "cuda_profiler"

    def __init__(self, spec: CaptureSpec, detaching: CuptiTeardown) -> None:  # noqa: ARG002 - those of every capture
        self.device = device_in_use()
        self.recording = False
        self._marked = False
        self._tail = DeviceTail(self.device)
        self._regions = _Regions()

    def owns(self, profile: object) -> bool:  # noqa: ARG002 - the protocol's
        """See :class:`Capture`. There is no profile object."""
        return False

    def prepare(self) -> None:
        """See :class:`Capture`.

        Raises:
            RuntimeError: there is no CUDA device in use.
        """
        if self.device != "cuda":
            raise RuntimeError("capture.backend=cuda_profiler marks windows for nsys; this process uses no CUDA device")

    def start(self, step: int, metadata: dict[str, Any]) -> None:  # noqa: ARG002 - nsys has its own
        """See :class:`Capture`."""
        torch.cuda.cudart().cudaProfilerStart()  # type: ignore[no-untyped-call]
        self.recording = True
        self.mark(step)
        in_job.recorder = self._regions

    def mark(self, step: int) -> None:
        """See :class:`Capture`."""
        self._end_range()
        torch.cuda.nvtx.range_push(f"ProfilerStep#{step}")  # type: ignore[no-untyped-call]
        self._marked = True

    def _end_range(self) -> None:
        if self._marked:
            torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
            self._marked = False

    def drained(self, within_s: float = 0.0) -> bool:  # noqa: ARG002 - only the device is waited for
        """See :class:`Capture`."""
        self._end_range()
        self._end_regions()
        return self._tail.is_over()

    def _end_regions(self) -> None:
        if in_job.recorder is self._regions:
            in_job.recorder = None

    def may_end(self, within_s: float) -> bool:  # noqa: ARG002 - the protocol's
        """See :class:`Capture`."""
        return True

    def stop(self, target: Path) -> None:  # noqa: ARG002 - nsys writes
        """See :class:`Capture`."""
        self._end_range()
        self._end_regions()
        self.recording = False
        torch.cuda.cudart().cudaProfilerStop()  # type: ignore[no-untyped-call]

    def cancel(self) -> None:
        """See :class:`Capture`. Nothing was started."""

    def leave(self) -> None:
        """See :class:`Capture`. Nothing records here."""
        self._end_regions()
