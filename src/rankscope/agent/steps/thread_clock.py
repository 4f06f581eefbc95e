"""CPU time of the training thread, and its time on a run queue (runnable, not running), since it began.

A read takes 2 us, and 25 us in a step that has used the caches for its own data, which is why
:mod:`rankscope.agent.steps.step_log` does not read it in every step. :mod:`rankscope.agent.steps.cpu_time` reads the
same for all threads of a window, with more detail.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

from rankscope.agent.process.descriptors import close_own, file_of

__all__ = ["ThreadClock"]

_CHECKED_EVERY = 16
_TEXT_BYTES = 96
"""Three numbers of at most 20 digits, with margin."""


class ThreadClock:
    """The two counters of one thread, in ns. The second stays 0 where the kernel does not keep it."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._own = (-1, -1)
        self._thread = 0
        self._pread: Any = None
        self._buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        self._arguments: tuple[Any, ...] = ()
        self._held = 0
        self._reads = 0

    def follow(self) -> None:
        """Follow the calling thread from now on; does nothing if it is followed already."""
        if self._thread == threading.get_ident():
            return
        self.close()
        self._thread = threading.get_ident()
        try:
            # keeps the GIL: getting it back from another thread takes up to 5 ms
            self._pread = ctypes.PyDLL(None).pread
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            self._own = file_of(self._file)
            numbers = ctypes.c_int(self._file), self._buffer, ctypes.c_size_t(_TEXT_BYTES), ctypes.c_long(0)
            self._arguments = numbers  # converted once, not at each read
        except (OSError, AttributeError, TypeError):  # not Linux, no such counts, or no file descriptor left
            self.close()

    def read(self) -> tuple[int, int] | None:
        """Return the nanoseconds run and waited for a CPU so far; None if they are unknown here."""
        self._reads += 1
        if self._file is not None:
            try:
                # A script that closes unknown descriptors does so once. Checking at each read whether the descriptor is
                # still that of our file would cost as much as the read. If it meanwhile belongs to a file of the
                # script, reading at position 0 does not move or change that file, and its text does not parse as these
                # numbers.
                if self._reads % _CHECKED_EVERY or file_of(self._file) == self._own:
                    count = self._pread(*self._arguments)
                    ran, held, _ = self._buffer.raw[: max(count, 0)].split(None, 2)
                    self._held = int(held)
                    return int(ran), self._held
            except (OSError, ValueError):
                pass
            self._file = None  # The script has closed it, and the descriptor may be that of another file.
        if threading.get_ident() == self._thread:
            return time.thread_time_ns(), self._held
        return None

    def close(self) -> None:
        """Stop following the thread."""
        file, self._file = self._file, None
        if file is not None:
            close_own(file, self._own)
