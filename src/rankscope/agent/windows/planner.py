"""Decide, on rank 0 and for all ranks, which window opens next and when. Pure: no torch, no clock, no file."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

from rankscope.capture_backends import resolve
from rankscope.records.spec import BudgetSpec, CaptureRequest, ScheduleSpec, Window

__all__ = ["Planner"]


class Planner:
    """Rank 0's decision on the next window.

    Args:
        schedule: the scheduled windows.
        budget: limits for all other windows.
        lead: least number of steps between an announcement and the first warm-up step.
        heard_within_s: time until an announcement has reached every rank, in seconds.
        backend: the configured backend; see :mod:`rankscope.capture_backends`.
    """

    def __init__(
        self,
        schedule: ScheduleSpec,
        budget: BudgetSpec,
        lead: int,
        heard_within_s: float,
        backend: str,
    ) -> None:
        self._schedule = schedule
        self._window = functools.lru_cache(maxsize=1)(schedule.window)  # asked for the same one at every step
        self._budget = budget
        self._lead = lead
        self._heard_within_s = heard_within_s
        self._backend, self._reason = resolve(backend)
        self._planned = 0
        self._unplanned_steps = 0

    def next(
        self,
        number: int,
        completed: int,
        step_s: float,
        sync_interval: int,
        *,
        request: CaptureRequest | None,
        slow_step: bool,
        pattern: CaptureRequest | None = None,
        megabytes: Callable[[], float],
    ) -> Window | None:
        """Return the window to announce now as window ``number``, or None.

        Args:
            number: number of the next window.
            completed: number of completed steps.
            step_s: usual step time in seconds; 0 if unknown. An unscheduled window waits until it is known.
            beat: synchronisation interval: the host waits for its device once in this number of steps.
            request: request from outside that is not answered yet.
            slow_step: whether some rank saw a slow step.
            pattern: steps that the step logs showed to be slow; a window waits for one of them, and for the budget.
            megabytes: returns the size of what was collected so far (10^6 bytes); called only if the budget decides.
        """
        lead = self._lead
        if step_s > 0:
            lead = max(lead, math.ceil(self._heard_within_s / step_s) + sync_interval - 1)
        else:
            request, slow_step, pattern = None, False, None
        planned = self._window(self._planned)
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
        elif pattern is not None:
            unplanned = _over(pattern, number, completed + lead + pattern.warmup, patience=lead)
        if unplanned is not None and (planned is None or unplanned.last + self._lead < planned.warm):
            return self._unplanned(unplanned, request, completed, megabytes)
        if planned is None:
            return None
        missed = completed > planned.first and not self._schedule.every
        if missed and step_s <= 0:
            # The window comes next, as soon as the travel time of its announcement can be expressed in steps.
            return None
        if missed:
            planned = planned.moved(completed + lead + planned.first - planned.warm)
        return self._at_plan(planned, number, completed, lead, megabytes)

    def again(self) -> None:
        """Repeat the scheduled windows, because steps are counted from 1 again."""
        self._planned = 0

    def _at_plan(
        self,
        window: Window,
        number: int,
        completed: int,
        lead: int,
        megabytes: Callable[[], float],
    ) -> Window | None:
        if completed < window.warm - lead:
            return None  # a request may come first until the window is near
        window = dataclasses.replace(window, number=number)
        # Always recorded: without it, a short job would leave nothing.
        first = self._planned == 0 and self._budget.windows > 0
        if self._schedule.every and not first and not self._affords(window, completed, megabytes):
            if completed >= window.warm:
                self._planned += 1  # this window is skipped; the next may be affordable
            return None
        self._planned += 1
        if self._schedule.every:
            self._unplanned_steps += _steps(window)
        return self._recorded(window)

    def _recorded(self, window: Window) -> Window:
        """Return the window with the backend that records it, and why it is not the configured one."""
        return dataclasses.replace(window, backend=self._backend, backend_reason=self._reason)

    def _unplanned(
        self, window: Window, request: CaptureRequest | None, completed: int, megabytes: Callable[[], float]
    ) -> Window | None:
        if request is None:
            if not self._affords(window, completed, megabytes):
                return None
            self._unplanned_steps += _steps(window)
        return self._recorded(window)

    def _affords(self, window: Window, completed: int, megabytes: Callable[[], float]) -> bool:
        steps = self._unplanned_steps + _steps(window)
        return (
            window.number < self._budget.windows
            and megabytes() < self._budget.megabytes
            and steps <= max(completed, window.last) * self._budget.step_pct / 100
        )


def _over(pattern: CaptureRequest, number: int, begins: int, patience: int) -> Window | None:
    """Return a window over the next step of a pattern that it can contain; None if that is over ``patience`` steps
    away."""
    before = (pattern.steps - 1) // 2
    target = max(pattern.at, begins + before)
    if pattern.every:
        target += (pattern.at - target) % pattern.every
    first = max(target - before, begins)
    if first > begins + patience:
        return None
    last = first + pattern.steps - 1
    return Window(number=number, warm=first - pattern.warmup, first=first, last=last, origin="pattern")


def _steps(window: Window) -> int:
    """Return the number of steps that the window slows down, warm-up included."""
    return window.last - window.warm + 1
