"""Tear CUPTI down after a window, and delay process exit and other profilers until the teardown has finished.

While CUPTI is attached it slows every launch down: a host-bound DDP step of 22 ms took 27 ms from the window to the end
of the job, and 22 ms when detached (benchmarks/README.md). With ``TEARDOWN_CUPTI`` set, libkineto detaches it in a
thread of its own, inside the next call to the device by any thread (libkineto/src/CuptiActivityApi.cpp,
teardownContext). That has side effects, which this module prevents:

- A process that exits without a further call would hang: a destructor of libkineto waits for that thread forever
  (``pthread_cond_destroy``; native stacks, torch 2.11). :meth:`CuptiTeardown.close` makes a call.
- A profiler that begins before that call would lose CUPTI and record no kernel (torch 2.13). The script's own profiler
  waits in :meth:`CuptiTeardown.finish`.
- libkineto subscribes to CUPTI at the begin of a window if the variable is set by then, else in that thread. There,
  with CUPTI attached, ``cuptiSubscribe`` publishes the subscriber before its tables are complete, and a thread that
  calls the device at that moment crashes (CUPTI 13.0.85, three of three busy jobs; core and machine code). So the
  variable is set before a window begins, and not at all if ``DISABLE_CUPTI_LAZY_REINIT`` forbids that.
- If CUPTI is attached at that time, as after the script's own torch.profiler, the window begins by detaching it and
  contains no kernel (GenericActivityProfiler.cpp, configure). So after the script's profiler CUPTI stays attached, as
  it would without rankscope.
- A CUDA graph that libkineto's own threads have recorded (not torch.profiler), and that is replayed after they have
  detached CUPTI, ends the job: *unspecified launch failure* (CUPTI 13.0.85, nine of nine jobs whose step is one graph,
  and none of nine where CUPTI stayed; PyTorch's pull requests 112507 and 151124 describe the same before CUDA 12.6). So
  CUPTI stays attached in jobs that capture graphs as well.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

import torch

__all__ = ["CuptiTeardown"]

_TEARDOWN = "TEARDOWN_CUPTI"
_NOT_LAZILY = "DISABLE_CUPTI_LAZY_REINIT"
_WAITS_WITHIN_S = 2.0
"""libkineto's thread waits for a call from some milliseconds after its creation on; after this time it certainly
does."""
_LETS_GO_WITHIN_S = 0.5
"""The same limit where the calls only make the teardown happen earlier."""
_POLL_S = 0.02


class CuptiTeardown:
    """Tracks the teardown that libkineto was asked for, and whether it has been done. One per process."""

    def __init__(self) -> None:
        self._graphs = False
        self._stays = False
        self._value: str | None = None
        self._under_way = False
        self._ended_s: float | None = None

    def decide(self, device: str | None) -> None:
        """Decide on the teardown after a window that is about to begin."""
        self._value = None
        if device != "cuda":
            return
        user_decides = _TEARDOWN in os.environ or _NOT_LAZILY in os.environ
        if self._graphs:
            self._value = "0"
        elif not user_decides and _may_attach_again():
            self._value = "0" if self._stays else "1"  # "0" has to be set: later versions tear down by default
        self._under_way = (self._value or os.environ.get(_TEARDOWN)) == "1"

    @contextlib.contextmanager
    def variable_set(self) -> Iterator[None]:
        """Set the variable within this context, in which libkineto is called and reads it. Outside, it is as the script
        left it, so that no child of the job inherits it."""
        value, before = self._value, os.environ.get(_TEARDOWN)
        if value is None:
            yield
            return
        os.environ[_TEARDOWN] = value
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(_TEARDOWN, None)
            else:
                os.environ[_TEARDOWN] = before

    def window_ended(self) -> None:
        """Note that libkineto has ended the window, after which it does not need the variable any more."""
        self._value = None
        if self._under_way:
            self._under_way = False
            self._ended_s = time.monotonic()

    def stay_attached(self) -> None:
        """Note that the script's own profiler begins, which leaves CUPTI attached. The window that is open still
        detaches it."""
        self._stays = True

    def graph(self) -> bool:
        """Note that a CUDA graph is about to be captured, which may be replayed in this window and later.

        Returns:
            Whether it is the first.
        """
        first, self._graphs = not self._graphs, True
        if self._under_way:
            self._value = "0"  # read when the window ends
        return first

    def finish(self) -> None:
        """Detach CUPTI by calls to the device, because another profiler begins. libkineto has ended its window."""
        if self._ended_s is None:
            return
        pause = threading.Event()
        _call()
        while time.monotonic() - self._ended_s <= _LETS_GO_WITHIN_S:
            pause.wait(_POLL_S)
            _call()

    def close(self) -> bool:
        """Make the call that libkineto's thread may still wait for, because the process exits.

        Returns:
            False if that thread, and with it a destructor, may start to wait later.
        """
        if self._under_way:
            return False
        if self._ended_s is None:
            return True
        _call()
        return time.monotonic() - self._ended_s > _WAITS_WITHIN_S


def _call() -> None:
    """Make a call to the device that is also allowed while a CUDA graph is captured."""
    with contextlib.suppress(Exception):
        torch.cuda.is_current_stream_capturing()


def _may_attach_again() -> bool:
    """Return whether CUPTI may be attached again. Before CUDA 12.6 that can crash a process with CUDA graphs (see
    start_trace of torch.profiler)."""
    version = torch.version.cuda
    return version is not None and tuple(int(part) for part in version.split(".")[:2]) >= (12, 6)
