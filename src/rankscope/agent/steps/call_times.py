"""When each step issued its collectives, from torch's flight recorder, read now and then between windows.

What makes a rank late inside of its backward does not show in the parts of a step, because peers wait for it there,
too. It shows in the time from the begin of the backward to the last collective issued in it: collectives are issued and
not waited for, so that this time is the rank's own. Torch's flight recorder keeps the last calls of all groups with the
time of issue, and the time on the device for NCCL with ``TORCH_NCCL_ENABLE_TIMING=1``. (When NCCL's calls have ended it
knows from a thread that looks every 100 ms, which is too coarse for a step.)

The recorder can only be read as a whole: 2,000 entries take 20 ms, with the GIL held, and cover hundreds of steps. It
is read at the end of a step, in the training thread, never while a CUDA graph is captured, and as seldom as its share
of the time demands. The number of steps between two reads is a power of two, so that the ranks read at the same steps
and the job loses the time once. Nothing is waited for.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Any

from rankscope.records.running.step_log import CALL_TIMES_ENTRY
from rankscope.rundir.files import replace_text

__all__ = ["CallTimes", "Recorder", "StepSpan", "call_times"]

FEWEST = 16
"""Least number of steps between two reads."""
FIRST_NS = 20_000_000
"""What the first read is assumed to take; all others take what the last one did."""
MOST_STEPS = 4096
"""Number of last steps whose begins and ends are kept."""

StepSpan = tuple[int, int, Sequence[tuple[int, int]]]
"""Number of a step, its end, and begin and end of its backwards, in nanoseconds."""


Recorder = Callable[[], Iterable[Mapping[str, Any]] | None]
"""Returns the entries of the flight recorder; None if there is none."""


class CallTimes:
    """Reads the recorder of one rank.

    Args:
        path: replaced at each read with what was found, for the helper.
        share: share of the time that reads may take; 0 never reads.
        read: the recorder.
        busy: whether the device must not be queried now.
        clock: nanoseconds, monotonic.
    """

    def __init__(
        self,
        path: Path,
        share: float,
        read: Recorder,
        busy: Callable[[], bool] = lambda: False,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._path, self._share, self._read, self._busy, self._clock = path, share, read, busy, clock
        self._steps: deque[StepSpan] = deque(maxlen=MOST_STEPS)
        self._took, self._told = 0, -1
        self.every = FEWEST
        """Number of steps between two reads."""
        self.off = share <= 0

    def note(self, number: int, end: int, backwards: Sequence[tuple[int, int]]) -> None:
        """Note a step that has ended, in order.

        Args:
            number: of the step in the step log.
            end: on the clock.
            backwards: begin and end of each backward of the step, on the clock.
        """
        self._steps.append((number, end, backwards))

    def read_if_due(self) -> bool:
        """Read the recorder if it is time to, in the training thread after :meth:`note`; return whether it was read."""
        if self.off or not self._steps or (self._steps[-1][0] + 1) % self.every:
            return False
        if not self._took:
            self._pause(FIRST_NS)
            return False
        begun = self._clock()
        try:
            if self._busy():
                return False
            self.off = not self._take()
        except Exception:  # an unexpected recorder, or a full disk: the log goes on without
            self.off = True
        self._pause(self._clock() - begun)
        return True

    def _take(self) -> bool:
        entries = self._read()
        if not entries:
            return False
        ahead = time_ns() - self._clock()  # of CLOCK_REALTIME, on which calls are noted
        found = call_times(entries, self._steps, ahead)
        fresh = [step for step in found if step[0] > self._told]
        if fresh:
            self._told = fresh[-1][0]
            replace_text(self._path, b"".join(CALL_TIMES_ENTRY.pack(*step) for step in fresh))
        return True

    def _pause(self, took: int) -> None:
        """Set how many steps pass until the next read, from what the last one took and how long steps take."""
        self._took = took
        first, last = self._steps[0], self._steps[-1]
        step = (last[1] - first[1]) / max(last[0] - first[0], 1)
        needed = took / self._share / max(step, 1.0)
        self.every = FEWEST
        while self.every < needed:
            self.every *= 2


def call_times(
    entries: Iterable[Mapping[str, Any]], steps: Sequence[StepSpan], ahead: int = 0
) -> list[tuple[int, int, int, int]]:
    """Return what the recorder shows of each step that it holds as a whole.

    Args:
        entries: of a flight recorder. Entries of an unexpected form are left out.
        steps: in order. The first only tells where the next one begins.
        ahead: by how much the entries' clock is ahead of that of the steps, ns.

    Returns:
        For each step: its number; microseconds from the begin of its backward to the last call issued in it, summed
        over its backwards, 0 if there was no call in a backward; number of calls; and time that they took on the
        device, in 0.1 ms, 0 if torch did not time them. A backward without calls, as before the last micro-batch, is
        the rank's own as a whole.
    """
    calls: list[tuple[int, float]] = []
    oldest: dict[str, int] = {}
    for entry in entries:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            created = int(entry["time_created_ns"]) - ahead
            name = str(entry["profiling_name"])
            library = name.partition(":")[0]
            oldest[library] = min(oldest.get(library, created), created)
            if not name.endswith("coalesced"):  # the launch of calls that have entries of their own
                calls.append((created, float(entry.get("duration_ms") or 0.0)))
    if not oldest:
        return []
    whole_since = max(oldest.values())  # earlier calls may have been overwritten: each library has a ring of its own
    calls.sort()
    issued = [created for created, _ in calls]
    found = []
    for (_, begin, _), (number, end, backwards) in pairwise(steps):
        if begin < whole_since:
            continue
        first, last = bisect_left(issued, begin), bisect_left(issued, end)
        own, within = 0, False
        for start, stop in backwards:
            at = bisect_left(issued, stop, first, last)
            has = at > first and issued[at - 1] >= start
            own += (issued[at - 1] if has else stop) - start
            within |= has
        device = round(10 * sum(duration for _, duration in calls[first:last]))
        found.append((number, own // 1000 if within else 0, min(last - first, 0xFFFF), min(device, 0xFFFF)))
    return found
