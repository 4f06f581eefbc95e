"""Agreement on the next window: rank 0 decides and announces it, and every rank follows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from rankscope.agent.process.guard import keep_message
from rankscope.agent.windows.notices import Notices
from rankscope.agent.windows.planner import Planner
from rankscope.records.spec import AgentSpec, CaptureRequest, Window
from rankscope.statistics.step_time import StepTimeEstimate

__all__ = ["Agreement"]

T = TypeVar("T")

_FIRST_STEPS = 3
"""Number of steps after which their usual time is known well enough to tell how many steps an announcement takes."""


class Agreement:
    """One rank's part in the agreement on windows.

    Args:
        spec: specification of the run.
        rank: rank of this process.
        board: notices by which windows are announced.
        pace: step time estimate of this rank.
        heard_within_s: time until an announcement has reached the last rank, in seconds.
        source: the signal by which steps are counted.
    """

    def __init__(
        self,
        spec: AgentSpec,
        rank: int,
        notices: Notices,
        step_time: StepTimeEstimate,
        heard_within_s: float,
        source: str = "",
    ) -> None:
        self._spec = spec
        self._leads = rank == 0
        self._notices = notices
        self._step_time = step_time
        self._planner = Planner(
            spec.schedule,
            spec.budget,
            spec.agreement_lead,
            heard_within_s,
            spec.capture.backend,
        )
        self._window = functools.lru_cache(maxsize=1)(spec.schedule.window)
        self._number, self._planned, self._requests = 0, 0, notices.answered()
        self._next: Window | None = None
        self._source = source
        self._earlier: set[str] = set()
        self._busy_until = 0
        self._read: dict[str, Any] = {}
        self._why = ""
        self.confirmed: bool | None = None
        """True if the window taken last was announced; None if no announcement came."""

    def due(self, completed: int) -> bool:
        """Return whether the warm-up of a window has to begin after this number of completed steps."""
        if completed <= self._busy_until:
            return False
        if self._next is None:
            if self._notices.changed():
                self._read.clear()
            if self._leads:
                self._lead(completed)
            self._look(completed)
        return self._next is not None and completed >= self._next.warm

    def take(self) -> tuple[Window, Window | None]:
        """Return the window that is due, and its schedule if it is scheduled; the next window gets the next number.

        Raises:
            RuntimeError: no window is due.
        """
        window, self._next = self._next, None
        if window is None:
            raise RuntimeError("no window is due")
        self._number += 1
        self._busy_until = window.last
        return window, self._spec.schedule.window(self._planned - 1) if window.origin == "plan" else None

    def recount(self, source: str) -> None:
        """Count steps by this signal from now on, from 1 again; scheduled windows are repeated."""
        self._earlier.add(self._source)
        self._source = source
        self._planner.again()
        self._next, self._planned, self._busy_until = None, 0, 0

    def plan_comes(self, completed: int) -> bool:
        """Return whether a scheduled window is next whose warm-up begins now, or that has to open now without a
        warm-up."""
        plan = self._window(self._planned)
        return plan is not None and not self._spec.schedule.every and completed in (plan.warm, plan.first)

    def closed(self, completed: int) -> None:
        """Note that the window taken last is over, so that another may follow at once."""
        self._busy_until = completed - 1

    def _lead(self, completed: int) -> None:
        """Decide on the next window and announce it (rank 0 only)."""
        window = self._planner.next(
            self._number,
            completed,
            self._step_s(),
            self._step_time.sync_interval,
            request=self._request() or self._asked(),
            slow_step=self._spec.budget.slow_step > 0
            and self._standing("slow_step", lambda: self._notices.stands("slow_step")),
            pattern=self._pattern(),
            megabytes=self._notices.gathered_megabytes,
        )
        if window is None:
            return
        self._read.clear()
        self._notices.announce(dataclasses.replace(window, counted_by=self._source))
        self._notices.take("slow_step")
        if window.origin == "pattern":
            self._notices.take("pattern")
        elif window.origin == "script":
            keep_message(self._why)
            self._notices.take("asked")
        elif window.origin not in ("plan", "slow_step"):
            self._answered()

    def _standing(self, name: str, read: Callable[[], T]) -> T:
        """Return the value of a notice; it is read again only after the notices have changed."""
        if name not in self._read:
            self._read[name] = read()
        found: T = self._read[name]
        return found

    def _step_s(self) -> float:
        """Usual step time in seconds: the estimate, else the shortest of the first steps, which are slow; 0 while
        unknown."""
        if self._step_time.usual_ms:
            return self._step_time.usual_ms / 1e3
        first = self._step_time.recent_ms
        return min(first) / 1e3 if len(first) >= _FIRST_STEPS else 0.0

    def _request(self) -> CaptureRequest | None:
        """Return the next request from outside. A request that no rank can follow is skipped, and the report mentions
        it."""
        try:
            return self._standing(f"request {self._requests}", lambda: self._notices.request(self._requests))
        except ValueError as error:
            keep_message(f"request number {self._requests} from outside was passed over: {error}")
            self._answered()
            return None

    def _asked(self) -> CaptureRequest | None:
        """Return the window that the script wants (:func:`rankscope.capture`). Requests of several ranks are one: they
        came before the steps that were recorded for the first were over."""
        try:
            asked = self._standing("asked", self._notices.asked)
        except ValueError as error:
            keep_message(f"a window that the script wanted was passed over: {error}")
            self._notices.take("asked")
            return None
        if asked is None:
            return None
        why = f"in step {asked.at}" + (f" ({asked.reason})" if asked.reason else "")
        budget = self._spec.budget
        if asked.at <= self._busy_until:
            self._notices.take("asked")
        elif self._number >= budget.windows or self._notices.gathered_megabytes() >= budget.megabytes:
            keep_message(f"rankscope.capture {why} was refused: budget.windows or budget.megabytes is used up")
            self._notices.take("asked")
        else:
            self._why = f"window {self._number} was asked for by rankscope.capture {why}"
            return dataclasses.replace(asked, name="script")
        return None

    def _pattern(self) -> CaptureRequest | None:
        try:
            return self._standing("pattern", self._notices.pattern)
        except ValueError as error:
            keep_message(f"what the node helper wanted to be recorded was passed over: {error}")
            self._notices.take("pattern")
            return None

    def _answered(self) -> None:
        self._requests += 1
        self._notices.answer(self._requests)

    def _look(self, completed: int) -> None:
        """Follow the announced window; without an announcement, follow a schedule that needs none."""
        self.confirmed = None
        try:
            announced = self._standing(f"window {self._number}", lambda: self._notices.announced(self._number))
        except ValueError as error:
            keep_message(f"window {self._number} was passed over: {error}")
            self._number += 1
            return
        if announced is not None:
            if announced.counted_by == self._source:
                self._next, self.confirmed = announced, True
                if announced.origin == "plan":
                    self._planned += 1
            elif announced.counted_by in self._earlier:
                self._number += 1  # announced before the count began again; the schedule is repeated
            return
        plan = self._window(self._planned)
        # Rank 0 moves a scheduled window that was missed, so that its announcement is needed.
        if plan is not None and not self._spec.schedule.every and plan.warm <= completed <= plan.first:
            self._next = dataclasses.replace(plan, number=self._number)
            self._planned += 1
