"""Which window opens next, and where: decided by rank 0, told to all. Pure: no torch, no clock, no file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from rankscope.records.spec import BY_LIBKINETO, BudgetSpec, CaptureRequest, ScheduleSpec, Window

__all__ = ["HEARD_WITHIN_S", "Planner"]

HEARD_WITHIN_S = {"node": 0.25, "nodes": 1.0}
"""An announcement has reached every rank by then: on the board of one node, or carried to others (polls: 0.2 s)."""
_READY_WITHIN_S = 30.0
"""libkineto asks every 5 s; when it takes longer than this something is wrong, and torch.profiler records."""
_NOT_ASKED = "libkineto had not asked for work on every rank yet"


class Planner:
    """Rank 0's side of the agreement.

    Args:
        schedule: the planned windows.
        budget: limits for all others.
        lead: fewest steps between an announcement and the first warm-up step.
        heard_within_s: how long an announcement travels.
        backend: ``inline``, ``kineto``, ``kineto_alone`` (the same here), ``cuda_profiler``, or ``auto``: kineto, and
            inline when it is not ready.
        no_kineto: why kineto is not possible here, or None.
    """

    def __init__(
        self,
        schedule: ScheduleSpec,
        budget: BudgetSpec,
        lead: int,
        heard_within_s: float,
        backend: str,
        no_kineto: str | None,
    ) -> None:
        self._schedule = schedule
        self._budget = budget
        self._lead = lead
        self._heard_within_s = heard_within_s
        self._auto = backend == "auto"
        self._backend = backend
        self._reason: str | None = None
        if backend in ("auto", *BY_LIBKINETO):
            self._backend, self._reason = ("kineto", None) if no_kineto is None else ("inline", no_kineto)
        self._planned = 0
        self._unplanned_steps = 0
        self._due_s: float | None = None

    def next(
        self,
        number: int,
        completed: int,
        step_s: float,
        beat: int,
        now_s: float,
        *,
        ready: bool,
        request: CaptureRequest | None,
        slow_step: bool,
        megabytes: Callable[[], float],
    ) -> Window | None:
        """The window to announce now as window ``number``, or None.

        Args:
            number: of the next window.
            completed: steps completed.
            step_s: a usual step, seconds; 0 unknown. A window that nobody planned waits until it is known.
            beat: the host waits for its device every so many steps, and hurries through those between.
            now_s: any clock that only goes forward.
            ready: libkineto holds a request on every rank.
            request: from outside, not yet answered.
            slow_step: some rank saw one.
            megabytes: tells what was gathered so far; asked only where the budget decides.
        """
        lead = self._lead
        if step_s > 0:
            lead = max(lead, math.ceil(self._heard_within_s / step_s) + beat - 1)
        else:
            request, slow_step = None, False
        planned = self._schedule.window(self._planned)
        unplanned = None
        if request is not None:
            begins = completed + lead + request.warmup
            unplanned = Window(
                number=number, warm=begins - request.warmup, first=begins, last=begins + request.steps - 1,
                origin=request.name, detail=request.detail,
            )  # fmt: skip
        elif slow_step:
            begins = completed + lead + 1
            last = begins + self._schedule.active - 1
            unplanned = Window(number=number, warm=begins - 1, first=begins, last=last, origin="slow_step")
        if unplanned is not None and (planned is None or unplanned.last + self._lead < planned.warm):
            return self._unplanned(unplanned, request, completed, now_s, ready, megabytes)
        if planned is None:
            return None
        return self._at_plan(dataclasses.replace(planned, number=number), completed, lead, now_s, ready, megabytes)

    def _at_plan(
        self,
        window: Window,
        completed: int,
        lead: int,
        now_s: float,
        ready: bool,
        megabytes: Callable[[], float],
    ) -> Window | None:
        if completed < window.warm - lead:
            return None  # until it is near, a request may come first
        if self._schedule.every and not self._affords(window, completed, megabytes):
            if completed >= window.warm:
                self._planned += 1  # this one is left out; the next may be affordable
            return None
        # The first window is never lost to waiting where nobody asked for kineto: the job may be short.
        patience_s = math.inf if not self._auto else _READY_WITHIN_S if window.number else 0.0
        if self._waits(ready, now_s, patience_s):
            return None
        if self._backend == "kineto" and completed + 1 > window.warm:
            window = window.moved(completed + lead + window.first - window.warm)
        self._planned += 1
        if self._schedule.every:
            self._unplanned_steps += _steps(window)
        return self._recorded(window, ready)

    def _waits(self, ready: bool, now_s: float, patience_s: float) -> bool:
        """A window is due. Wait for libkineto?"""
        due_s = now_s if self._due_s is None else self._due_s
        waits = self._backend == "kineto" and not ready and now_s - due_s < patience_s
        self._due_s = due_s if waits else None
        return waits

    def _recorded(self, window: Window, ready: bool) -> Window:
        """The window, with who records it and why not who was asked to."""
        backend, reason = self._backend, self._reason
        if backend == "kineto" and window.detail:
            backend, reason = "inline", "the request wants what only torch.profiler records"
        elif backend == "kineto" and not ready:
            backend, reason = "inline", _NOT_ASKED
        return dataclasses.replace(window, backend=backend, backend_reason=reason)

    def _unplanned(
        self,
        window: Window,
        request: CaptureRequest | None,
        completed: int,
        now_s: float,
        ready: bool,
        megabytes: Callable[[], float],
    ) -> Window | None:
        if request is None and not self._affords(window, completed, megabytes):
            return None
        if self._waits(ready, now_s, _READY_WITHIN_S):
            return None
        if request is None:
            self._unplanned_steps += _steps(window)
        return self._recorded(window, ready)

    def _affords(self, window: Window, completed: int, megabytes: Callable[[], float]) -> bool:
        steps = self._unplanned_steps + _steps(window)
        return (
            window.number < self._budget.windows
            and megabytes() < self._budget.megabytes
            and steps <= max(completed, window.last) * self._budget.step_pct / 100
        )


def _steps(window: Window) -> int:
    """Steps that run slower for it, warm-up included."""
    return window.last - window.warm + 1
