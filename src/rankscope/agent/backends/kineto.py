"""Backend ``kineto``: libkineto records, processes and writes in threads of its own, without Python's lock.

With ``KINETO_USE_DAEMON`` set when torch is imported, libkineto polls a socket every five seconds for the configuration
of a trace (libkineto/src/ConfigLoader.cpp); the node helper answers there. A configuration says at which *iteration* to
warm up, record and stop, and iterations are counted by ``torch.autograd._kineto_step``. We alone call it, three times a
window, so that a configuration can wait in libkineto for as long as it takes and opens exactly where the ranks agreed.

What libkineto does not survive, and how it is spared (all reproduced, with torch 2.11 or 2.13): a process that ends
while it warms up, records or writes crashes, so what has begun is brought to its end first; one that ends while a
request arrives aborts, so an open request is taken back; torch.profiler beside it crashes, so one waits for the other;
a forked child that ends normally hangs on threads it does not have, so it leaves without running C++ destructors
(:mod:`rankscope.agent.process.skip_destructors`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import _add_metadata_json, _kineto_step
from torch.profiler.profiler import _KinetoProfile

from rankscope.agent.backends.base import DeviceTail, StepMarks, device_in_use
from rankscope.agent.process.cupti_teardown import CuptiTeardown
from rankscope.records.spec import CaptureSpec
from rankscope.rundir.files import replace_text

__all__ = ["KinetoCapture", "KinetoLink", "why_not_this_torch"]

_POLL_S = 0.02
_NEVER_MS = 4_102_444_800_000
"""2100. Iterations say when to begin; this is looked at in the warm-up all the same: once it is past, by default 15 s
after the request came, libkineto's loop no longer sleeps and does nothing but flush CUPTI, which then asks for 4 MB,
and zeroes them, for every record: steps took 0.4 s (native stacks, torch 2.11). And when the buffers are used up in
the warm-up, it gives the window up without a word (CuptiActivityProfiler.cpp, performRunLoopStep)."""
_BUFFERS_MB = 1024
"""Of CUPTI's records at most, some hundreds of steps. At libkineto's own 128 a window ends early."""
_GIVEN_UP_S = 120.0
"""libkineto begins to write a second after a window's end. A file that is empty for so long will stay so."""
_ARRIVES_WITHIN_S = 0.1
"""Twice what libkineto waits for an answer."""


class KinetoLink:
    """The understanding between this process, its libkineto and the node helper. One per process.

    Args:
        folder: where requests are left for the helper and libkineto writes; libkineto writes nowhere else.
        spec: what to record; a request cannot be changed once libkineto has it.
        detaching: of this process.
    """

    def __init__(self, folder: Path, spec: CaptureSpec, detaching: CuptiTeardown) -> None:
        self._folder = folder
        self._spec = spec
        self._request = folder / f"ask_{os.getpid()}"
        self._number = 0
        self._trace: Path | None = None
        self._detaching = detaching
        self._ended_s = math.inf
        self._rests = True
        self.holds_request = False
        _kineto_step()  # until iterations are counted, libkineto takes every request for one by duration
        self._ask()

    def _ask(self) -> None:
        self.holds_request = False
        lines = {
            "ACTIVITIES_LOG_FILE": self._folder / f"kineto_{self._number}.json",
            "PROFILE_START_ITERATION": 1,  # long past: then the iteration after the next is the first to be recorded
            "PROFILE_START_TIME": _NEVER_MS,
            "ACTIVITIES_WARMUP_ITERATIONS": 1,
            "ACTIVITIES_ITERATIONS": 1,
            "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB": _BUFFERS_MB,
            "PROFILE_REPORT_INPUT_SHAPES": str(self._spec.record_shapes or self._spec.with_flops).lower(),
            "PROFILE_PROFILE_MEMORY": str(self._spec.profile_memory).lower(),
            "PROFILE_WITH_STACK": "false",
            "PROFILE_WITH_FLOPS": str(self._spec.with_flops).lower(),
            "PROFILE_WITH_MODULES": "false",
        }
        self._number += 1  # no file name is used twice
        replace_text(self._request, "".join(f"{key}={value}\n" for key, value in lines.items()))

    def tend(self) -> None:
        """Look after what is under way; cheap enough for every step."""
        if self._trace is not None:
            if self.writes:
                return
            self._trace = None
            self._ask()
        if self.holds_request or self._request.exists():
            return
        self.holds_request = self._rests = True
        self._detaching.told()  # libkineto asks for work when it is done; it detaches after the file is complete

    def rest(self, within_s: float) -> bool:
        """Wait until libkineto is done with its last window and asks for work again, at most so long. True when it is.

        Between writing and asking it clears what it holds, which would be another profiler's by then.
        """

        def rests() -> bool:
            self.tend()
            return self._rests

        return _comes_true(rests, within_s)

    def close(self, within_s: float) -> bool:
        """The process ends: take back what was asked, let an answer under way arrive, wait for what is being written.

        Returns:
            False when libkineto still writes after so long; its destructors would crash the process.
        """
        self._request.unlink(missing_ok=True)
        threading.Event().wait(_ARRIVES_WITHIN_S)
        return _comes_true(lambda: not self.writes, within_s)

    @property
    def writes(self) -> bool:
        """A window is under way, or recorded and not yet written. False also when libkineto gave it up."""
        if self._trace is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            size = _temporary(self._trace).stat().st_size
            return size > 0 or time.monotonic() - self._ended_s < _GIVEN_UP_S
        return False

    # ------------------------------------------------------------ for KinetoCapture

    def warm_up(self, device: str | None) -> None:
        """Begin a window, of ``device``.

        Raises:
            RuntimeError: libkineto did not begin.
        """
        if not self.holds_request:
            raise RuntimeError("libkineto had not asked for work yet, torch.profiler records instead")
        self._detaching.ask(device)
        self.holds_request = False
        before = self._temporaries()
        _kineto_step()
        # Not always what was asked for last: an answer that reached libkineto too late is taken at its next poll.
        begun = self._temporaries() - before
        if not begun:
            self._ask()
            raise RuntimeError("libkineto did not begin the window it was asked for, torch.profiler records instead")
        self._trace, self._ended_s, self._rests = begun.pop().with_suffix(""), math.inf, False

    def record(self) -> None:
        """The warm-up is over.

        Raises:
            RuntimeError: libkineto gave the window up.
        """
        self._advance()

    def end(self) -> Path:
        """The window is over.

        Returns:
            The file that libkineto writes.

        Raises:
            RuntimeError: libkineto gave the window up.
        """
        self._ended_s = time.monotonic()
        return self._advance()

    def _advance(self) -> Path:
        if self._trace is None or not self.writes:  # the next iteration could begin another window
            raise RuntimeError("libkineto gave the window up; another profiler in this process may have cancelled it")
        _kineto_step()
        return self._trace

    def _temporaries(self) -> set[Path]:
        return set(self._folder.glob(f"kineto_*_{os.getpid()}.json.tmp"))


def _comes_true(what: Callable[[], bool], within_s: float) -> bool:
    """Look, and look again for so long."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not (true := what()) and time.monotonic() < deadline:
        pause.wait(_POLL_S)
    return true


def _temporary(trace: Path) -> Path:
    """What libkineto calls a file until it is complete."""
    return trace.with_name(f"{trace.name}.tmp")


class KinetoCapture:
    """See :class:`rankscope.agent.backends.base.Capture`."""

    name = "kineto"

    def __init__(self, link: KinetoLink) -> None:
        self.device = device_in_use()
        self.recording = False
        self._link = link
        self._marks = StepMarks()
        self._tail = DeviceTail(self.device)

    def owns(self, profile: object) -> bool:  # noqa: ARG002 - the protocol's
        """See :class:`Capture`. There is no profile object."""
        return False

    def prepare(self) -> None:
        """See :class:`Capture`."""
        self._link.warm_up(self.device)

    def start(self, step: int, metadata: dict[str, Any]) -> None:
        """See :class:`Capture`."""
        self._link.record()
        self.recording = True
        _add_metadata_json("rankscope", json.dumps(metadata))
        distributed = _KinetoProfile._get_distributed_info(None)  # type: ignore[arg-type, no-untyped-call]  # noqa: SLF001 - uses no self
        if distributed:
            _add_metadata_json("distributedInfo", json.dumps(distributed, default=str))
        self.mark(step)

    def mark(self, step: int) -> None:
        """See :class:`Capture`."""
        self._marks.begin(step)

    def drained(self) -> bool:
        """See :class:`Capture`. Of kernels that run after the stop libkineto keeps nothing."""
        self._marks.end()
        return self._tail.is_over()

    def stop(self, target: Path) -> str:  # noqa: ARG002 - the protocol's
        """See :class:`Capture`. The file appears when libkineto has written all of it.

        Raises:
            RuntimeError: libkineto had stopped before.
        """
        self._marks.end()
        self.recording = False
        return self._link.end().name

    def cancel(self) -> None:
        """See :class:`Capture`. Two more iterations and libkineto is done; what it writes is not asked for."""
        self._marks.end()
        with contextlib.suppress(RuntimeError):  # it is done already
            if not self.recording:
                self._link.record()
            self._link.end()
        self.recording = False


def why_not_this_torch(*, alone: bool) -> str | None:
    """Why libkineto of this torch shall not record by itself, or None. ``alone``: nothing else here is torch.profiler.

    Socket folder, atomic file and graceful cancelling were seen from 2.11 on. Up to 2.12 what libkineto records by
    itself and what torch.profiler records are one state, and the loop that its first window starts ends either: 7 s
    after it was prepared torch.profiler's session is over, and the process aborts (2.11, each time).
    """
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < (2, 11):
        return f"libkineto's own capture is used from torch 2.11 on, this is {torch.__version__}"
    if version < (2, 13) and not alone:
        return (
            f"libkineto of torch {torch.__version__} would abort a script that uses torch.profiler itself; if it does "
            "not, say so with -S capture.backend=kineto_alone"
        )
    return None
