"""Unique ids, and lanes in which slices nest.

Viewers draw the slices of one thread as a stack: a slice that begins inside another and ends after it cannot be drawn.
Such slices get an additional lane.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.timeline.names import quoted

__all__ = ["FIRST_PROCESS", "Tracks", "lanes"]

I64 = NDArray[np.int64]

FIRST_PROCESS = 1000
"""Process id of rank 0. Viewers show it with the name, and interpret 0 as the idle process."""
_FIRST_THREAD = 1_000_000
"""Above every process id, since viewers take a thread with its process's number for the main thread."""


@dataclass(slots=True)
class Tracks:
    """Assigns process and thread ids and stores their names."""

    _threads: dict[tuple[int, Hashable, int], int] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)

    def process(self, rank: int) -> int:
        """Return the process id of a rank."""
        return FIRST_PROCESS + rank

    def name_process(self, rank: int, name: str, label: str) -> None:
        """Name a rank's process and sort it by rank."""
        pid = self.process(rank)
        self._meta(pid, None, "process_name", f'"name":{quoted(name)}')
        self._meta(pid, None, "process_sort_index", f'"sort_index":{rank}')
        if label:
            self._meta(pid, None, "process_labels", f'"labels":{quoted(label)}')

    def thread(self, rank: int, key: Hashable, lane: int, name: str, order: int) -> int:
        """Return the thread id of one lane of a track; it is created and named at the first call."""
        place = (rank, key, lane)
        tid = self._threads.get(place)
        if tid is None:
            tid = self._threads[place] = _FIRST_THREAD + len(self._threads)
            pid = self.process(rank)
            shown = name if lane == 0 else f"{name} ({lane + 1})"
            self._meta(pid, tid, "thread_name", f'"name":{quoted(shown)}')
            self._meta(pid, tid, "thread_sort_index", f'"sort_index":{order * 100 + min(lane, 99)}')
        return tid

    def take_lines(self) -> list[str]:
        """Return the metadata lines that were not returned before."""
        lines, self._lines = self._lines, []
        return lines

    def _meta(self, pid: int, tid: int | None, kind: str, args: str) -> None:
        thread = "" if tid is None else f'"tid":{tid},'
        self._lines.append(f'{{"ph":"M","pid":{pid},{thread}"name":"{kind}","args":{{{args}}}}}')


def lanes(start: I64, end: I64) -> NDArray[np.int32]:
    """Return the lane of each slice, such that any two in a lane either nest or do not overlap.

    Args:
        start: in ascending order; ties longer first.
        end: of each slice.
    """
    result = np.zeros(len(start), np.int32)
    stacks: list[list[int]] = [[]]
    for index, (begin, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        for lane, stack in enumerate(stacks):
            while stack and stack[-1] <= begin:
                stack.pop()
            if not stack or until <= stack[-1]:
                stack.append(until)
                if lane:
                    result[index] = lane
                break
        else:
            result[index] = len(stacks)
            stacks.append([until])
    return result
