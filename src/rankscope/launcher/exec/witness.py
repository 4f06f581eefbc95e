"""A process that tells whether a signal was sent to our whole process group or to this process alone.

What a terminal or ``kill -- -GROUP`` sends reaches the command as well, and to pass it on would be to send it twice:
torchrun, for one, takes a second SIGTERM for an order to leave its own cleaning up. What is sent to us alone has to be
passed on. The kernel tells a receiver nothing of that. So a third process of the group holds all signals back and says
on request which have come since.

The answer is exact: ``kill`` visits a group under a lock (``tasklist_lock``) that ``fork`` has to take, so once the
witness has forked, all of the group have what one of them had.
"""

from __future__ import annotations

import contextlib
import os
import signal

__all__ = ["Witness"]

_MOST_DESCRIPTOR = 4096


class Witness:
    """To be made before any thread is."""

    def __init__(self) -> None:
        ask, self._ask = os.pipe()
        self._answers, answer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(ask, answer)
        os.close(ask)
        os.close(answer)

    def seen(self) -> frozenset[int]:
        """Which signals the whole group was sent since the last question. To be asked by one caller at a time."""
        with contextlib.suppress(OSError):  # nobody there: the command is gone too, or all is passed on
            os.write(self._ask, b"?")
            count = os.read(self._answers, 1)
            return frozenset(os.read(self._answers, count[0])[1:]) if count else frozenset()
        return frozenset()

    def close(self) -> None:
        """End it."""
        for descriptor in (self._ask, self._answers):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        with contextlib.suppress(OSError):
            os.waitpid(self._pid, 0)


def _serve(ask: int, answer: int) -> None:
    everything = signal.valid_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, everything)
    low, high = sorted((ask, answer))
    for first, last in ((0, low), (low + 1, high), (high + 1, _MOST_DESCRIPTOR)):
        os.closerange(first, last)  # above all the job's own streams, whose readers wait for their end
    with contextlib.suppress(BaseException):
        while os.read(ask, 1):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            seen = set()
            while (came := signal.sigtimedwait(everything, 0)) is not None:
                seen.add(came.si_signo)
            os.write(answer, bytes([len(seen) + 1, 0, *sorted(seen)]))
    os._exit(0)
