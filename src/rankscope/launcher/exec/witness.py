"""A process that shows whether a signal was sent to our whole process group or to this process alone.

A signal from a terminal or by ``kill -- -GROUP`` reaches the command as well, so passing it on would send it twice;
torchrun, for one, skips its own cleanup after a second SIGTERM. A signal to this process alone has to be passed on. The
kernel does not tell the receiver which was the case. So a third process of the group blocks all signals, and reports on
request which have arrived since.

The answer is exact: ``kill`` visits a group under a lock (``tasklist_lock``) that ``fork`` has to take, so once the
witness has forked, all processes of the group have received what one of them has.
"""

from __future__ import annotations

import contextlib
import os
import signal

__all__ = ["Witness"]

_MOST_DESCRIPTOR = 4096


class Witness:
    """The witness process. To be created before any thread is."""

    def __init__(self) -> None:
        ask, self._ask = os.pipe()
        self._answers, answer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(ask, answer)
        os.close(ask)
        os.close(answer)

    def seen(self) -> frozenset[int]:
        """Return the signals that were sent to the whole group since the last call. Not to be called concurrently."""
        with contextlib.suppress(OSError):  # it has ended: the command has too, or all signals are passed on
            os.write(self._ask, b"?")
            count = os.read(self._answers, 1)
            return frozenset(os.read(self._answers, count[0])[1:]) if count else frozenset()
        return frozenset()

    def close(self) -> None:
        """End the process."""
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
        os.closerange(first, last)  # above all the job's own streams, whose readers wait for end-of-file
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
