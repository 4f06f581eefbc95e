"""Which thread of this process trains: the first that ends a step outside of backward."""

from __future__ import annotations

import threading

__all__ = ["TrainingThread"]


class TrainingThread:
    """The thread in which a profiler is begun and ended. Not known before the first step."""

    def __init__(self) -> None:
        self._ident: int | None = None

    @property
    def known(self) -> bool:
        """It has been seen."""
        return self._ident is not None

    @property
    def ident(self) -> int | None:
        """Its identifier, as :mod:`threading` has it."""
        return self._ident

    def is_this(self) -> bool:
        """The caller runs in it."""
        return threading.get_ident() == self._ident

    def claim(self) -> bool:
        """The caller runs in it, or is the first that asks and runs in it from now on."""
        if self._ident is None:
            self._ident = threading.get_ident()
        return self.is_this()

    def forget(self) -> None:
        """This is a forked child, which may train in another thread."""
        self._ident = None
