"""CPU time and run-queue wait of this process's threads, step by step, as the Linux scheduler counts them.

``/proc/self/task/TID/schedstat`` (Documentation/scheduler/sched-stats.rst) holds the nanoseconds that a thread has run,
and those that it was runnable without running. The second is what contention for CPUs costs a rank: a thread that
sleeps, or waits for its peers, is not runnable.

A read takes 1 us. It keeps the GIL (``ctypes.PyDLL``): with another busy Python thread, getting the GIL back would take
up to 5 ms at each read.
"""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Any

from rankscope.agent.process.descriptors import close_own, file_of
from rankscope.records.rank import ThreadKind, ThreadTimes

__all__ = ["CpuTimes"]

_MOST_THREADS = 64
"""In a process with more threads, the training thread and those with most CPU time are followed; 64 reads take 64 us a
step."""
_LEAST_MS = 0.05
"""A thread that neither ran nor waited for this long in the whole window is left out of the record."""
_TEXT_BYTES = 96
"""Three numbers of at most 20 digits, with margin."""


class CpuTimes:
    """Follows the threads that exist when a window begins; none if the kernel does not keep these counters."""

    def __init__(self, tasks: Path = Path("/proc/self/task")) -> None:
        self._tasks = tasks
        self._buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        self._pread: Any = None
        self._files: list[int] = []
        self._own: list[tuple[int, int]] = []
        self._last: list[tuple[int, int]] = []
        self._threads: list[ThreadTimes] = []

    def begin(self) -> None:
        """Begin with the first recorded step; the caller is the training thread."""
        self.close()
        try:
            self._pread = ctypes.PyDLL(None).pread
            self._pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
            self._pread.restype = ctypes.c_ssize_t
            self._open()
        except (OSError, AttributeError, TypeError):  # not Linux, no such counts, or no file descriptor left
            self.close()

    def step(self) -> None:
        """Note that a step has ended and the next begins."""
        for place, file in enumerate(self._files):
            ran, waited = self._read(file) or self._last[place]
            before = self._last[place]
            self._threads[place].cpu_ms.append((ran - before[0]) / 1e6)
            self._threads[place].wait_ms.append((waited - before[1]) / 1e6)
            self._last[place] = ran, waited

    def end(self) -> list[ThreadTimes]:
        """Return the counts by thread, the training thread first, and stop following."""
        found = [t for t in self._threads[1:] if sum(t.cpu_ms) + sum(t.wait_ms) >= _LEAST_MS]
        found = self._threads[:1] + found
        self.close()
        return found

    def close(self) -> None:
        """Stop following all threads."""
        for descriptor, file in zip(self._files, self._own, strict=True):
            close_own(descriptor, file)
        self._files, self._own, self._last, self._threads = [], [], [], []

    def _open(self) -> None:
        own = threading.get_native_id()
        python = {thread.native_id for thread in threading.enumerate()}
        others = [int(task.name) for task in self._tasks.iterdir() if int(task.name) != own]
        if len(others) >= _MOST_THREADS:
            others = sorted(others, key=self._cpu_ns, reverse=True)[: _MOST_THREADS - 1]
        for tid in (own, *others):
            try:
                file = os.open(self._tasks / str(tid) / "schedstat", os.O_RDONLY | os.O_CLOEXEC)
                name = (self._tasks / str(tid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                if tid == own:
                    raise
                continue  # the thread has ended
            self._files.append(file)
            self._own.append(file_of(file))
            kind: ThreadKind = "training" if tid == own else "python" if tid in python else "native"
            self._threads.append(ThreadTimes(tid=tid, name=name, kind=kind))
        self._last = [self._read(file) or (0, 0) for file in self._files]

    def _cpu_ns(self, tid: int) -> int:
        try:
            return int((self._tasks / str(tid) / "schedstat").read_text(encoding="ascii").split()[0])
        except (OSError, ValueError, IndexError):
            return 0

    def _read(self, file: int) -> tuple[int, int] | None:
        """Return the nanoseconds run, and runnable without running, since the thread began; None once it has ended."""
        count = self._pread(file, self._buffer, _TEXT_BYTES, 0)
        try:
            ran, waited, *_ = self._buffer.raw[: max(count, 0)].split()
            return int(ran), int(waited)
        except ValueError:
            return None
