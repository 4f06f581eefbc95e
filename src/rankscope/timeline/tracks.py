"""Ids that never collide, and lanes in which slices nest.

Viewers draw the slices of one thread as a stack: a slice that begins inside another and ends after it cannot be
drawn. Such slices get a lane of their own beside the first.
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
"""Process id of rank 0. Viewers show it beside the name, and 0 means the idle process to them."""
_FIRST_THREAD = 1_000_000
"""Above every process id, since viewers take a thread with its process's number for the main one."""


@dataclass(slots=True)
class Tracks:
    """Hands out process and thread ids and remembers their names."""

    _threads: dict[tuple[int, Hashable, int], int] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)

    def process(self, rank: int) -> int:
        """Process id of a rank."""
        return FIRST_PROCESS + rank

    def name_process(self, rank: int, name: str, label: str) -> None:
        """Name a rank's process and put it in order of rank."""
        pid = self.process(rank)
        self._meta(pid, None, "process_name", f'"name":{quoted(name)}')
        self._meta(pid, None, "process_sort_index", f'"sort_index":{rank}')
        if label:
            self._meta(pid, None, "process_labels", f'"labels":{quoted(label)}')

    def thread(self, rank: int, key: Hashable, lane: int, name: str, order: int) -> int:
        """Thread id of one lane of a track; made and named when first asked for."""
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
        """Metadata not yet taken."""
        lines, self._lines = self._lines, []
        return lines

    def _meta(self, pid: int, tid: int | None, kind: str, args: str) -> None:
        thread = "" if tid is None else f'"tid":{tid},'
        self._lines.append(f'{{"ph":"M","pid":{pid},{thread}"name":"{kind}","args":{{{args}}}}}')


def lanes(start: I64, end: I64) -> NDArray[np.int32]:
    """Lane of each slice such that within a lane any two either nest or are apart.

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
