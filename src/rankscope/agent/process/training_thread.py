"""The training thread of this process: the first thread that ends a step outside of backward."""

from __future__ import annotations

import threading

__all__ = ["TrainingThread"]


class TrainingThread:
    """The thread in which the profiler is started and stopped. It is unknown before the first step."""

    def __init__(self) -> None:
        self._ident: int | None = None

    @property
    def known(self) -> bool:
        """Whether the thread is known."""
        return self._ident is not None

    @property
    def ident(self) -> int | None:
        """Its identifier, as in :mod:`threading`; None if unknown."""
        return self._ident

    def is_this(self) -> bool:
        """Return whether the caller runs in this thread."""
        return threading.get_ident() == self._ident

    def claim(self) -> bool:
        """Return whether the caller runs in this thread. If the thread is unknown, it becomes the caller's."""
        if self._ident is None:
            self._ident = threading.get_ident()
        return self.is_this()

    def forget(self) -> None:
        """Forget the thread, in a forked child, which may train in another one."""
        self._ident = None
