"""Every step of the run, not only those of the windows: 16 bytes each, in a file that both we and the helper map.

The helper reads it from the side, and what is written survives any death of this process.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path

from rankscope.records.step_log import STEP_LOG_CAPACITY, STEP_LOG_ENTRY, STEP_LOG_HEADER

__all__ = ["StepLog"]

_LARGEST = 2**32 - 1


class StepLog:
    """Writes one entry per step."""

    def __init__(self, path: Path) -> None:
        size = STEP_LOG_HEADER.size + STEP_LOG_CAPACITY * STEP_LOG_ENTRY.size
        with path.open("w+b") as stream:
            stream.truncate(size)
            self._map = mmap.mmap(stream.fileno(), size)
        self._count = 0
        self._last: int | None = None
        self.input_ns = 0

    def step(self, recorded: bool, paused_ns: int) -> int:
        """A step has ended.

        Args:
            recorded: it was inside a window, warm-up included.
            paused_ns: what the garbage collector took of it.

        Returns:
            Its duration in nanoseconds; 0 for the first, whose beginning nobody saw.
        """
        now = time.perf_counter_ns()
        elapsed = now - self._last if self._last is not None else 0
        self._last = now
        slot = STEP_LOG_HEADER.size + (self._count % STEP_LOG_CAPACITY) * STEP_LOG_ENTRY.size
        microseconds = (min(value // 1000, _LARGEST) for value in (elapsed, self.input_ns, paused_ns))
        STEP_LOG_ENTRY.pack_into(self._map, slot, *microseconds, int(recorded))
        self.input_ns = 0
        self._count += 1
        STEP_LOG_HEADER.pack_into(self._map, 0, self._count)
        return elapsed
