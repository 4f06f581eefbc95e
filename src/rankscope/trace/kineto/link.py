"""Find steps, and the call that launched each kernel. Vectorised."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from rankscope.records.rank import OWN_STEP_MARK
from rankscope.trace.columns import Category, Events, Steps

__all__ = ["counted_on", "find_steps", "link_launches", "misplaced", "overruns"]

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

_ROUNDING_NS = 1000
_NEVER = np.iinfo(np.int64).max
MISPLACED = 0.01
"""Largest share of the device events that can have begun too late by damage: a device that is behind runs most of its
work after the end of the host's."""
CROSSING = 0.01
"""Share of a step mark by which the next may begin before its end, because clocks are read one after the other."""
_STEP = re.compile(r"ProfilerStep#(\d{1,18})\Z")
_OWN_STEP = re.compile(re.escape(OWN_STEP_MARK) + r"(\d{1,18})\Z")


def find_steps(events: Events, strings: list[str]) -> Steps:
    """Find the outermost ``ProfilerStep#N`` of the main host thread.

    The same steps may occur several times: nested (by a profiler of the user), on another thread, on the GPU. If the
    marks of two schedules cross, those of one are used, since the marks of both together are not step boundaries. In
    traces recorded by rankscope only its own marks count, because the script's profiler marks steps even while it does
    not record.
    """
    own = {code: int(m.group(1)) for code, s in enumerate(strings) if (m := _OWN_STEP.match(s))}
    numbers = own or {code: int(m.group(1)) for code, s in enumerate(strings) if (m := _STEP.match(s))}
    host = np.isin(events.category, (Category.USER_ANNOTATION, Category.CPU_OP))
    rows = np.flatnonzero(host & np.isin(events.name, list(numbers)))
    if not len(rows):
        empty = np.empty(0, np.int64)
        return Steps(empty, empty.copy(), empty.copy())
    rows = rows[_main_thread(events, rows)]
    kept: list[int] = []
    end = np.iinfo(np.int64).min
    for row in rows.tolist():  # a few dozen; in order of start, longer first
        if int(events.start[row] + events.duration[row]) > end:
            kept.append(row)
            end = int(events.start[row] + events.duration[row])
    chosen = np.array(kept)
    number = np.array([numbers[int(c)] for c in events.name[chosen]], np.int64)
    chain = _one_schedule(number, events.start[chosen], events.duration[chosen])
    return Steps(number[chain], events.start[chosen[chain]].copy(), events.duration[chosen[chain]].copy())


def counted_on(steps: Steps) -> bool:
    """Give each step a unique number if marks repeat theirs (all ``ProfilerStep#1``, or a count that restarted within
    the file): one more than the previous step's. In place; return False if no number was repeated."""
    number = steps.number
    if len(np.unique(number)) == len(number):
        return False
    for place in range(1, len(number)):
        number[place] = max(number[place], number[place - 1] + 1)
    return True


def _one_schedule(number: I64, start: I64, duration: I64) -> I64:
    """Return the indices of the marks of one schedule, by default of all: those that together cover most time.

    Args:
        number: of the marks, none of which is inside another.
        start: of the marks, ns, ascending.
        duration: of the marks, ns.
    """
    end = start + duration
    if not (start[1:] < end[:-1] - CROSSING * duration[:-1]).any():
        return np.arange(len(number))

    def after(chain: list[int], place: int) -> bool:
        return bool(start[place] >= end[chain[-1]] - CROSSING * duration[chain[-1]])

    runs: list[list[int]] = []  # consecutive numbers
    for place in range(len(number)):
        run = next((r for r in runs if number[r[-1]] + 1 == number[place] and after(r, place)), None)
        if run is None:
            runs.append([place])
        else:
            run.append(place)
    chains: list[list[int]] = []  # a count that restarted, or lost a mark, continues where the previous run ended
    for run in runs:
        free = [c for c in chains if after(c, run[0])]
        if free:
            max(free, key=lambda c: int(end[c[-1]])).extend(run)
        else:
            chains.append(run)
    return np.array(max(chains, key=lambda c: (int(duration[c].sum()), -int(start[c[0]]))), np.int64)


def _main_thread(events: Events, rows: I64) -> NDArray[np.bool_]:
    pid, tid = events.pid[rows], events.tid[rows]
    if (main := pid == tid).any():  # Linux: the main thread's id is the process's
        return np.asarray(main)
    threads = set(zip(pid.tolist(), tid.tolist(), strict=True))
    longest = max(threads, key=lambda t: (int(events.duration[rows][(pid == t[0]) & (tid == t[1])].sum()), t))
    return np.asarray((pid == longest[0]) & (tid == longest[1]))


def link_launches(category: NDArray[np.int8], correlation: I64, start: I64) -> I32:
    """Return the index of the runtime or driver call that launched each GPU event, -1 if the trace has none.

    A graph launch has many kernels, and ids can be reused: of several calls with the id, the last one that began before
    the kernel counts.
    """
    launch = np.full(len(start), -1, np.int32)
    gpu = np.flatnonzero(
        np.isin(category, (Category.KERNEL, Category.GPU_MEMCPY, Category.GPU_MEMSET)) & (correlation > 0)
    )
    calls = np.flatnonzero(np.isin(category, (Category.CUDA_RUNTIME, Category.CUDA_DRIVER)) & (correlation > 0))
    if not len(gpu) or not len(calls):
        return launch
    # Sort calls and kernels of one id by time, calls first at equal times: the last call before a kernel is its launch.
    rows = np.concatenate((calls, gpu))
    is_call = np.arange(len(rows)) < len(calls)
    order = np.lexsort((~is_call, start[rows], correlation[rows]))
    keys, calls_seen = correlation[rows[order]], is_call[order]
    place = np.arange(len(order))
    last = np.maximum.accumulate(np.where(calls_seen, place, 0))
    # Clocks of host and device differ by microseconds: a kernel may seem to begin before the only call with its id.
    first = np.minimum.accumulate(np.where(calls_seen, place, len(order) - 1)[::-1])[::-1]
    chosen = np.where(calls_seen[last] & (keys[last] == keys), last, first)
    found = ~calls_seen & calls_seen[chosen] & (keys[chosen] == keys)
    launch[rows[order[found]]] = rows[order[chosen[found]]]
    return launch


def misplaced(category: NDArray[np.int8], pid: I64, stream: I32, start: I64, duration: I64) -> I64:
    """Return the rows of device events with damaged times. A single one would stretch the recorded window many times.

    Either an event would end after the next one of its stream begins (a stream runs one after the other), or few of all
    events begin after the end of all host events: both by more than the time that all other events take.
    """
    device = (category >= Category.KERNEL) & (category <= Category.GPU_MEMSET) & (stream >= 0)
    rows, host = np.flatnonzero(device), np.flatnonzero(~device & (stream < 0))
    if len(rows) < 2:
        return rows[:0]
    late = rows[:0]
    if len(host):
        begun, ended = int(start[host].min()), int((start[host] + duration[host]).max())
        late = rows[start[rows] > ended + (ended - begun)]
        others = np.setdiff1d(rows, late)
        apart = len(others) and start[late].min(initial=_NEVER) - start[others].max() > np.ptp(start[others])
        late = late if apart and len(late) <= MISPLACED * len(rows) else rows[:0]
    rows = np.setdiff1d(rows, late)
    rows = rows[np.lexsort((start[rows], stream[rows], pid[rows]))]
    before, after = rows[:-1], rows[1:]
    over = duration[before] - (start[after] - start[before]) > np.ptp(start[np.concatenate((rows, host))])
    return np.union1d(late, before[over & (pid[before] == pid[after]) & (stream[before] == stream[after])])


def overruns(category: NDArray[np.int8], pid: I64, stream: I32, start: I64, duration: I64) -> tuple[int, int]:
    """Return how many device events end after the next one of their stream begins, and by how much in total (ns).

    A stream runs one event after the other, so the clocks or the durations are wrong there (or kernels were launched to
    overlap on purpose). Up to a microsecond is due to rounding of the times.
    """
    rows = np.flatnonzero((category >= Category.KERNEL) & (category <= Category.GPU_MEMSET) & (stream >= 0))
    if len(rows) < 2:
        return 0, 0
    rows = rows[np.lexsort((start[rows], stream[rows], pid[rows]))]
    before, after = rows[:-1], rows[1:]
    over = start[before] + duration[before] - start[after]
    over = over[(pid[before] == pid[after]) & (stream[before] == stream[after]) & (over > _ROUNDING_NS)]
    return len(over), int(over.sum())
