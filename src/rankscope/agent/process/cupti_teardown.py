"""Tear CUPTI down after a window, and delay process exit and other profilers until the teardown has finished.

While CUPTI is attached it slows every launch down: a host-bound DDP step of 22 ms took 27 ms from the window to the end
of the job, and 22 ms when detached (benchmarks/README.md). With ``TEARDOWN_CUPTI`` set, libkineto detaches it in a
thread of its own, inside the next call that anyone makes to the device (libkineto/src/CuptiActivityApi.cpp,
teardownContext). That has side effects, which this module prevents:

- A process that makes no further call and ends would hang: a destructor of libkineto waits for that thread without end
  (``pthread_cond_destroy``; native stacks, torch 2.11). :meth:`CuptiTeardown.close` makes one.
- A profiler that begins before that call would lose CUPTI and record no kernel (torch 2.13). The script's own
  waits in :meth:`CuptiTeardown.finish`.
- libkineto subscribes to CUPTI at a window's beginning if the variable is set by then, else in that thread; and there,
  with CUPTI attached, ``cuptiSubscribe`` announces the subscriber before its tables are complete, and a thread
  that calls the device at that moment crashes (CUPTI 13.0.85, three of three busy jobs; core and machine code).
  So the variable is set before a window begins, and not at all where ``DISABLE_CUPTI_LAZY_REINIT`` forbids that.
- But if CUPTI is attached then, as it is after the script's own torch.profiler, the window begins with detaching it,
  and has no kernel (GenericActivityProfiler.cpp, configure). So after that one CUPTI stays, as it would without us.
- A CUDA graph that libkineto's own threads recorded and that is replayed after they have detached CUPTI ends the job:
  *unspecified launch failure* (CUPTI 13.0.85, nine of nine jobs whose step is one graph, and none of nine where it
  stayed; PyTorch's pull requests 112507 and 151124 describe the same before CUDA 12.6). So where graphs are captured
  CUPTI stays as well.
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
"""libkineto's thread waits for a call some milliseconds after it was made."""
_LETS_GO_WITHIN_S = 0.5
"""The same where the call only makes the teardown happen earlier."""
_POLL_S = 0.02


class CuptiTeardown:
    """What libkineto was asked to tear down, and whether it has done so. One per process."""

    def __init__(self) -> None:
        self._graphs = False
        self._stays = False
        self._value: str | None = None
        self._under_way = False
        self._told_s: float | None = None

    def ask(self, device: str | None) -> None:
        """A window begins, after which CUPTI is not needed for a while."""
        self._value = None
        if device != "cuda":
            return
        user_decides = _TEARDOWN in os.environ or _NOT_LAZILY in os.environ
        if self._graphs:
            self._value = "0"
        elif not user_decides and _may_attach_again():
            self._value = "0" if self._stays else "1"  # no plainly too: later versions tear down by default
        self._under_way = (self._value or os.environ.get(_TEARDOWN)) == "1"

    @contextlib.contextmanager
    def said(self) -> Iterator[None]:
        """Within this context libkineto is called and reads the variable. Outside it is as the script left it, so that
        no child of the job inherits it."""
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

    def told(self) -> None:
        """libkineto has ended the window: it has read the variable, or is not to read it any more."""
        self._value = None
        if self._under_way:
            self._under_way = False
            self._told_s = time.monotonic()

    def stay(self) -> None:
        """The script's own profiler begins, and leaves CUPTI attached. The window that is open still detaches it."""
        self._stays = True

    def graph(self) -> bool:
        """A CUDA graph is about to be captured. It may be replayed in this window and after.

        Returns:
            Whether it is the first.
        """
        first, self._graphs = not self._graphs, True
        if self._under_way:
            self._value = "0"  # read when the window ends
        return first

    def finish(self) -> None:
        """Another profiler begins: make the calls in which CUPTI is detached. libkineto has ended its window."""
        if self._told_s is None:
            return
        pause = threading.Event()
        _call()
        while time.monotonic() - self._told_s <= _LETS_GO_WITHIN_S:
            pause.wait(_POLL_S)
            _call()

    def close(self) -> bool:
        """The process ends: make the call that libkineto's thread may still wait for.

        Returns:
            False when it may come to wait after that, and a destructor for it.
        """
        if self._under_way:
            return False
        if self._told_s is None:
            return True
        _call()
        return time.monotonic() - self._told_s > _WAITS_WITHIN_S


def _call() -> None:
    """Make a call to the device: one that is allowed also while a CUDA graph is captured."""
    with contextlib.suppress(Exception):
        torch.cuda.is_current_stream_capturing()


def _may_attach_again() -> bool:
    """Before CUDA 12.6 that can crash a process with CUDA graphs (see start_trace of torch.profiler)."""
    version = torch.version.cuda
    return version is not None and tuple(int(part) for part in version.split(".")[:2]) >= (12, 6)
