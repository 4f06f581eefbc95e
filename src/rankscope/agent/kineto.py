"""Backend ``kineto``: libkineto records, processes and writes in threads of its own, without Python's lock.

With ``KINETO_USE_DAEMON`` set when torch is imported, libkineto polls a socket every five seconds for the configuration
of a trace (libkineto/src/ConfigLoader.cpp); the node helper answers there. A configuration says at which *iteration* to
warm up, record and stop, and iterations are counted by ``torch.autograd._kineto_step``. We alone call it, three times a
window, so that a configuration can wait in libkineto for as long as it takes and opens exactly where the ranks agreed.

What libkineto does not survive, and how it is spared (all reproduced, with torch 2.11 or 2.13): a process that ends
while it warms up, records or writes crashes, so what has begun is brought to its end first; a process that ends while
a request arrives aborts, and a forked child that ends normally hangs on threads it does not have, so both leave without
running C++ destructors (:mod:`rankscope.agent.leave`).
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import _add_metadata_json, _kineto_step
from torch.profiler.profiler import _KinetoProfile

from rankscope.agent.capture import StepMarks, device_in_use
from rankscope.agent.inline import TEARDOWN, may_detach
from rankscope.model import CaptureSpec
from rankscope.rundir import replace_text

__all__ = ["KinetoCapture", "KinetoLink"]

_POLL_S = 0.02


class KinetoLink:
    """The understanding between this process, its libkineto and the node helper. One per process.

    Args:
        folder: where requests are left for the helper and libkineto writes; libkineto writes nowhere else.
        spec: what to record; a request cannot be changed once libkineto has it.
    """

    def __init__(self, folder: Path, spec: CaptureSpec) -> None:
        self._folder = folder
        self._spec = spec
        self._request = folder / f"ask_{os.getpid()}"
        self._iteration = 0
        self._asked = -1
        self._unwritten: Path | None = None
        self._restore_teardown = False
        self.holds_request = False
        _kineto_step()  # until iterations are counted, libkineto takes every request for one by duration
        self._ask()

    @property
    def number(self) -> int:
        """How many windows were recorded this way, and so the number of the one that is asked for."""
        return self._asked

    def _ask(self) -> None:
        self._asked += 1
        self.holds_request = False
        lines = {
            "ACTIVITIES_LOG_FILE": self._folder / f"kineto_{self._asked}.json",
            "PROFILE_START_ITERATION": self._iteration + 2,
            "ACTIVITIES_WARMUP_ITERATIONS": 1,
            "ACTIVITIES_ITERATIONS": 1,
            "PROFILE_REPORT_INPUT_SHAPES": str(self._spec.record_shapes or self._spec.with_flops).lower(),
            "PROFILE_PROFILE_MEMORY": str(self._spec.profile_memory).lower(),
            "PROFILE_WITH_STACK": "false",
            "PROFILE_WITH_FLOPS": str(self._spec.with_flops).lower(),
            "PROFILE_WITH_MODULES": "false",
        }
        replace_text(self._request, "".join(f"{key}={value}\n" for key, value in lines.items()))

    def tend(self) -> bool:
        """Look after what is under way; cheap enough for every step.

        Returns:
            True when libkineto has just taken the request for the next window.
        """
        if self._unwritten is not None:
            if not self._unwritten.exists():
                return False
            self._finish()
        if self.holds_request or self._request.exists():
            return False
        self.holds_request = True
        if self._restore_teardown:  # libkineto asks for work when it is done; it detaches after the file is complete
            os.environ.pop(TEARDOWN, None)
            self._restore_teardown = False
        return True

    def _finish(self) -> None:
        self._unwritten = None
        self._ask()

    def settle(self, within_s: float) -> bool:
        """Wait until libkineto has written what it recorded, at most so long. True when nothing is left to write."""
        deadline = time.monotonic() + within_s
        pause = threading.Event()
        while self._unwritten is not None and not self._unwritten.exists() and time.monotonic() < deadline:
            pause.wait(_POLL_S)
        return self._unwritten is None or self._unwritten.exists()

    # ------------------------------------------------------------ for KinetoCapture

    def trace(self) -> Path:
        """What libkineto makes of the file name that it was given."""
        return self._folder / f"kineto_{self._asked}_{os.getpid()}.json"

    def advance(self) -> None:
        """The next iteration: from waiting to warming up, to recording, to writing."""
        self._iteration += 1
        _kineto_step()

    def warm_up(self, detach_after: bool) -> None:
        """Begin the window that was asked for.

        Raises:
            RuntimeError: libkineto did not begin.
        """
        if not self.holds_request:
            raise RuntimeError("libkineto had not asked for work yet, torch.profiler records instead")
        if detach_after:
            self._restore_teardown = TEARDOWN not in os.environ
            os.environ[TEARDOWN] = "1"
        self.holds_request = False
        self.advance()
        path = self.trace()
        self._unwritten = path
        if not path.with_name(f"{path.name}.tmp").exists():
            self._finish()
            raise RuntimeError(
                "libkineto did not begin the window it had been asked for, torch.profiler records instead"
            )


class KinetoCapture:
    """See :class:`rankscope.agent.capture.Capture`."""

    name = "kineto"

    def __init__(self, link: KinetoLink) -> None:
        self.device = device_in_use()
        self.recording = False
        self._link = link
        self._marks = StepMarks()

    def owns(self, profile: object) -> bool:  # noqa: ARG002 - the protocol's
        """See :class:`Capture`. There is no profile object."""
        return False

    def prepare(self) -> None:
        """See :class:`Capture`."""
        self._link.warm_up(self.device == "cuda" and may_detach())

    def start(self, step: int, metadata: dict[str, Any]) -> None:
        """See :class:`Capture`."""
        self._link.advance()
        self.recording = True
        _add_metadata_json("rankscope", json.dumps(metadata))
        distributed = _KinetoProfile._get_distributed_info(None)  # type: ignore[arg-type, no-untyped-call]  # noqa: SLF001 - uses no self
        if distributed:
            _add_metadata_json("distributedInfo", json.dumps(distributed, default=str))
        self.mark(step)

    def mark(self, step: int) -> None:
        """See :class:`Capture`."""
        self._marks.begin(step)

    def stop(self, target: Path) -> str:
        """See :class:`Capture`. The file appears when libkineto has written all of it.

        Raises:
            OSError: libkineto had stopped before.
        """
        self._marks.end()
        self.recording = False
        name = self._link.trace().name
        if not target.with_name(f"{name}.tmp").exists():
            raise OSError("libkineto gave the window up; another profiler in this process may have cancelled it")
        self._link.advance()
        return name

    def cancel(self) -> None:
        """See :class:`Capture`. Two more iterations and libkineto is done; what it writes is not asked for."""
        if not self.recording:
            self._link.advance()
        self._marks.end()
        self.recording = False
        self._link.advance()


def version_is_known() -> bool:
    """Socket folder, atomic file and graceful cancelling were seen from torch 2.11 on."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 11)
