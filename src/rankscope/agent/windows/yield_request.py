"""Let a profiler of the script, started in any thread, wait until ours has ended, which only the training thread can
do."""

from __future__ import annotations

import threading

__all__ = ["YieldRequest"]

_WITHIN_S = 10.0
"""How long the script's profiler waits for ours if it starts in another thread than the training thread, in seconds."""


class YieldRequest:
    """A request to end our profiler: another thread asks and waits, and the training thread answers."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._answered = threading.Event()
        self.too_late = False
        """Whether the thread that asked has stopped waiting, so that its profiler is running by now."""

    @property
    def is_asked(self) -> bool:
        """Whether a thread is waiting."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Wait until our profiler has ended, or the limit is reached."""
        self._answered.clear()
        self._asked.set()
        self.too_late = not self._answered.wait(_WITHIN_S)
        if not self.too_late:
            self._asked.clear()

    def answer(self) -> None:
        """Note that our profiler has ended."""
        self._answered.set()
