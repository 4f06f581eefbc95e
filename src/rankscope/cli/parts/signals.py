"""Signals that end a verb: what it had begun is removed before the process ends as the signal would have ended it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

__all__ = ["unwound_by_signals"]

_ENDS = (signal.SIGTERM, signal.SIGHUP)


class _Ended(BaseException):
    """A signal came. Not an ``Exception``, so that no code takes it for a failure of what it does."""


@contextlib.contextmanager
def unwound_by_signals() -> Iterator[None]:
    """Within this block, SIGTERM and SIGHUP leave all contexts (temporary files and folders, worker processes), and
    then end the process by the same signal. Signals that are ignored or handled already stay so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def leave(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
        came.append(number)
        raise _Ended

    ours = [number for number in _ENDS if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    except _Ended as ended:
        traceback.clear_frames(ended.__traceback__)  # with the semaphores of worker processes, which would be told of
        gc.collect()
        os.kill(os.getpid(), came[0])
        raise  # pragma: no cover - the signal has ended the process
    finally:
        for number in ours:
            if signal.getsignal(number) is leave:
                signal.signal(number, signal.SIG_DFL)
