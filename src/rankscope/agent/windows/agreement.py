"""Which window comes next: rank 0 decides and announces it, and every rank follows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from rankscope.agent.process.guard import tell
from rankscope.agent.windows.notices import Notices
from rankscope.agent.windows.planner import Planner
from rankscope.records.spec import AgentSpec, CaptureRequest, Window
from rankscope.step_time import Pace

__all__ = ["Agreement"]

T = TypeVar("T")

_FIRST_STEPS = 3
"""Steps after which their usual time is known well enough to say how many steps an announcement takes."""


class Agreement:
    """One rank's part in the agreement on windows.

    Args:
        spec: of the run.
        rank: of this process.
        board: where windows are announced.
        pace: of this rank's steps.
        heard_within_s: how long an announcement travels to the last rank.
        source: the signal by which steps are counted.
    """

    def __init__(
        self, spec: AgentSpec, rank: int, board: Notices, pace: Pace, heard_within_s: float, source: str = ""
    ) -> None:
        self._spec = spec
        self._leads = rank == 0
        self._board = board
        self._pace = pace
        self._planner = Planner(
            spec.schedule,
            spec.budget,
            spec.agreement_lead,
            heard_within_s,
            spec.capture.backend,
        )
        self._window = functools.lru_cache(maxsize=1)(spec.schedule.window)
        self._number, self._planned, self._requests = 0, 0, board.answered()
        self._next: Window | None = None
        self._source = source
        self._earlier: set[str] = set()
        self._busy_until = 0
        self._read: dict[str, Any] = {}
        self.confirmed: bool | None = None
        """True when the window taken last was announced; None when no announcement came."""

    def due(self, completed: int) -> bool:
        """Whether a window's warm-up is to begin, now that so many steps are completed."""
        if completed <= self._busy_until:
            return False
        if self._next is None:
            if self._board.changed():
                self._read.clear()
            if self._leads:
                self._lead(completed)
            self._look(completed)
        return self._next is not None and completed >= self._next.warm

    def take(self) -> tuple[Window, Window | None]:
        """The window that is due, and what was planned where it is a planned one. The next has the next number."""
        window, self._next = self._next, None
        if window is None:
            raise RuntimeError("no window is due")
        self._number += 1
        self._busy_until = window.last
        return window, self._spec.schedule.window(self._planned - 1) if window.origin == "plan" else None

    def recount(self, source: str) -> None:
        """From now on steps are counted by this signal, from 1 again: what was planned comes again."""
        self._earlier.add(self._source)
        self._source = source
        self._planner.again()
        self._next, self._planned, self._busy_until = None, 0, 0

    def plan_comes(self, completed: int) -> bool:
        """Whether the next window is planned and its warm-up is to begin now, or can be left out for the last time."""
        plan = self._window(self._planned)
        return plan is not None and not self._spec.schedule.every and completed in (plan.warm, plan.first)

    def closed(self, completed: int) -> None:
        """The window taken last is over; another may follow at once."""
        self._busy_until = completed - 1

    def _lead(self, completed: int) -> None:
        """On rank 0: decide on the next window and announce it."""
        window = self._planner.next(
            self._number,
            completed,
            self._step_s(),
            self._pace.beat,
            request=self._request(),
            slow_step=self._spec.budget.slow_step > 0
            and self._standing("slow_step", lambda: self._board.stands("slow_step")),
            pattern=self._pattern(),
            megabytes=self._board.gathered_megabytes,
        )
        if window is None:
            return
        self._read.clear()
        self._board.announce(dataclasses.replace(window, counted_by=self._source))
        self._board.take("slow_step")
        if window.origin == "pattern":
            self._board.take("pattern")
        elif window.origin not in ("plan", "slow_step"):
            self._answered()

    def _standing(self, name: str, read: Callable[[], T]) -> T:
        """What stands on the board under a name; read again when something has changed there."""
        if name not in self._read:
            self._read[name] = read()
        found: T = self._read[name]
        return found

    def _step_s(self) -> float:
        """A usual step; of the first ones, which are slower than the rest, the shortest. 0 while nothing is known."""
        if self._pace.usual_ms:
            return self._pace.usual_ms / 1e3
        first = self._pace.recent_ms
        return min(first) / 1e3 if len(first) >= _FIRST_STEPS else 0.0

    def _request(self) -> CaptureRequest | None:
        """Return the next request from outside. One that no rank can follow is skipped, and the report says so."""
        try:
            return self._standing(f"request {self._requests}", lambda: self._board.request(self._requests))
        except ValueError as error:
            tell(f"request number {self._requests} from outside was passed over: {error}")
            self._answered()
            return None

    def _pattern(self) -> CaptureRequest | None:
        try:
            return self._standing("pattern", self._board.pattern)
        except ValueError as error:
            tell(f"what the node helper wanted to be recorded was passed over: {error}")
            self._board.take("pattern")
            return None

    def _answered(self) -> None:
        self._requests += 1
        self._board.answer(self._requests)

    def _look(self, completed: int) -> None:
        """Follow what was announced; without an announcement, follow a plan that needs none."""
        self.confirmed = None
        try:
            announced = self._standing(f"window {self._number}", lambda: self._board.announced(self._number))
        except ValueError as error:
            tell(f"window {self._number} was passed over: {error}")
            self._number += 1
            return
        if announced is not None:
            if announced.counted_by == self._source:
                self._next, self.confirmed = announced, True
                if announced.origin == "plan":
                    self._planned += 1
            elif announced.counted_by in self._earlier:
                self._number += 1  # from before the count began anew; the plan comes again
            return
        plan = self._window(self._planned)
        # One that was missed is moved by rank 0, so it is waited for.
        if plan is not None and not self._spec.schedule.every and plan.warm <= completed <= plan.first:
            self._next = dataclasses.replace(plan, number=self._number)
            self._planned += 1
