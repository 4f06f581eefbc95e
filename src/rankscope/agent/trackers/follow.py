"""Log key numbers of the job into the trackers that the script has open, every ten seconds, if that is configured.

The training thread only looks for open runs; a separate thread logs, because a tracker may wait for its server. While
it waits, nothing else is logged. A tracker that raises is not used again, and the report has the reason.
"""

from __future__ import annotations

import _thread
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from rankscope.agent.process.guard import keep_message
from rankscope.agent.trackers.base import Log, Tracker

__all__ = ["TrackerLog"]

PAUSE_S = 10.0
_ENDS_WITHIN_S = 1.0
"""Longest time in seconds that the exit of the process waits for a tracker that is logging."""


class TrackerLog:
    """Logs into the configured trackers.

    Args:
        trackers: the configured trackers.
        numbers: returns the numbers to log; None if there are none yet.
        start: runs a function in another thread.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        trackers: Sequence[Tracker],
        numbers: Callable[[], Mapping[str, float] | None],
        start: Callable[[Callable[[], None]], object] = lambda function: _thread.start_new_thread(function, ()),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trackers, self._numbers, self._start, self._clock = list(trackers), numbers, start, clock
        self._due = clock() + PAUSE_S
        self._logging = threading.Lock()

    def look(self, step: int) -> None:
        """Log into the open runs if the interval has passed. Called in the training thread, after a step."""
        if not self._trackers or (now := self._clock()) < self._due:
            return
        self._due = now + PAUSE_S
        logs = [(tracker, log) for tracker in list(self._trackers) if (log := self._opened(tracker)) is not None]
        if not logs or not self._logging.acquire(blocking=False):
            return
        try:
            self._start(lambda: self._log(logs, step))
        except RuntimeError:  # no thread can be started
            self._logging.release()

    def close(self) -> None:
        """Wait until current logging has ended, and log nothing more, because the process is about to exit."""
        self._trackers = []
        self._logging.acquire(timeout=_ENDS_WITHIN_S)  # never released

    def _opened(self, tracker: Tracker) -> Log | None:
        try:
            return tracker.opened()
        except Exception as error:
            self._drop(tracker, error)
            return None

    def _log(self, logs: Sequence[tuple[Tracker, Log]], step: int) -> None:
        try:
            with contextlib.suppress(BaseException):  # no error leaves this thread
                numbers = self._numbers()
                for tracker, log in logs if numbers else ():
                    self._log_into(tracker, log, numbers or {}, step)
        finally:
            self._logging.release()

    def _log_into(self, tracker: Tracker, log: Log, numbers: Mapping[str, float], step: int) -> None:
        try:
            log(numbers, step)
        except Exception as error:
            self._drop(tracker, error)

    def _drop(self, tracker: Tracker, error: Exception) -> None:
        self._trackers = [other for other in self._trackers if other is not tracker]
        keep_message(f"{tracker.name} gets no numbers of the job any more: {type(error).__name__}: {str(error)[:200]}")
