"""How a profiler of the script, begun in any thread, finds ours ended: only the training thread can end ours."""

from __future__ import annotations

import threading

__all__ = ["MakingWay"]

_WITHIN_S = 10.0
"""How long the script's profiler waits for ours, where it begins in another thread than the one that trains."""


class MakingWay:
    """One asks and waits, in its own thread; the training thread sees that and answers."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._answered = threading.Event()
        self.too_late = False
        """Who asked has not waited to the end, and its profiler is on by now."""

    @property
    def is_asked(self) -> bool:
        """Somebody waits."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Wait until ours has ended, or the limit is reached."""
        self._answered.clear()
        self._asked.set()
        self.too_late = not self._answered.wait(_WITHIN_S)
        if not self.too_late:
            self._asked.clear()

    def answer(self) -> None:
        """Ours has ended."""
        self._answered.set()
