"""What the script tells rankscope (:mod:`rankscope.in_job`): marks, what a step processes, requests for windows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from rankscope import in_job
from rankscope.agent.process.guard import keep_message
from rankscope.agent.windows.notices import Notices
from rankscope.limits import MAX_WINDOW_STEPS
from rankscope.records.rank import MARK, MAX_MARKS, ScriptMark
from rankscope.records.spec import DETAILS, CaptureRequest

__all__ = ["ScriptCalls"]

_WRITE_EVERY_S = 5.0
"""Marks are stored with the record of the process, at most so often, and at its end: a rank that is killed loses the
marks of the last seconds."""
_LETTERS = 80
_WARMUP = 2


class ScriptCalls:
    """See :class:`rankscope.in_job.Agent`. Each method may be called in any thread.

    Args:
        completed: returns the number of completed steps, which is the number of the current one.
        store: stores the record of the process. Called in the thread of the script.
    """

    def __init__(self, completed: Callable[[], int], store: Callable[[], None]) -> None:
        self.marks: list[ScriptMark] = []
        self.described: dict[str, float] = {}
        self.notices: Notices | None = None
        """Notices of the node; None before the first step, before which nothing can be recorded."""
        self._completed, self._store = completed, store
        self._stored = time.monotonic()

    def install(self) -> None:
        """Receive the script's calls from now on."""
        in_job.compiling = torch.compiler.is_compiling
        in_job.agent = self

    def leave(self) -> None:
        """Receive nothing any more."""
        if in_job.agent is self:
            in_job.agent = None

    def failed(self, what: str, error: Exception) -> None:
        """Keep an error for the report."""
        keep_message(f"{what} was not recorded: {type(error).__name__}: {error}")

    def mark(self, name: str, values: dict[str, Any]) -> None:
        """Keep a mark, and show it in the window that is open."""
        try:
            self._mark(name, values)
        except Exception as error:  # no error of rankscope may reach the job
            self.failed("a mark", error)

    def _mark(self, name: str, values: dict[str, Any]) -> None:
        if not isinstance(name, str):
            keep_message(f"a mark without a name was left out: its name is a {type(name).__name__}")
            return
        name = name[:_LETTERS]
        if (recorder := in_job.recorder) is not None:
            recorder.begin(f"{MARK}{name}").close()
        if len(self.marks) >= MAX_MARKS:
            keep_message(f"only the first {MAX_MARKS} marks are kept")
            return
        given = {key[:_LETTERS]: _number(key, value) for key, value in values.items()}
        numbers = {key: number for key, number in given.items() if number is not None}
        self.marks.append(ScriptMark(step=self._completed(), time_ns=time.time_ns(), name=name, values=numbers))
        if time.monotonic() - self._stored > _WRITE_EVERY_S:
            self._write()

    def describe(self, numbers: dict[str, Any]) -> None:
        """Keep what a step processes."""
        try:
            given = {key: _number(key, value) for key, value in numbers.items() if value is not None}
            known = {key: number for key, number in given.items() if number is not None and number > 0}
            if known.items() <= self.described.items():
                return
            self.described = {**self.described, **known}
            self._write()
        except Exception as error:  # as above
            self.failed("a description", error)

    def capture(self, steps: int, detail: str, reason: str) -> bool:
        """Ask rank 0 for a window."""
        try:
            return self._ask(steps, detail, reason)
        except Exception as error:  # as above
            self.failed("a request for a window", error)
            return False

    def _ask(self, steps: int, detail: str, reason: str) -> bool:
        if self.notices is None:
            return False
        if not 1 <= steps <= MAX_WINDOW_STEPS or detail not in ("", *DETAILS):
            keep_message(
                f"rankscope.capture asked for {steps!r} steps with detail {detail!r}: 1 to {MAX_WINDOW_STEPS} steps "
                f"are possible, and {', '.join(DETAILS)}"
            )
            return False
        # The name becomes a field of records; the reason is for people.
        asked = CaptureRequest(
            name="script", steps=int(steps), warmup=_WARMUP, detail=detail, at=self._completed(),
            reason=" ".join(str(reason).split())[:_LETTERS],
        )  # fmt: skip
        self.notices.ask(asked)
        return True

    def _write(self) -> None:
        self._stored = time.monotonic()
        self._store()


def _number(key: str, value: Any) -> float | None:
    """Return a number; None, with a message, for anything else: converting a tensor would wait for its device."""
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value)
    item = getattr(value, "item", None)
    if item is not None and not isinstance(value, torch.Tensor):  # a number of NumPy
        return _number(key, item())
    keep_message(f"{key[:_LETTERS]} is no finite number, but a {type(value).__name__}, and was left out")
    return None
