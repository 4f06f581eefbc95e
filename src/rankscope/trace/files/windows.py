"""Window of a trace whose path does not state it: found by step numbers, else by time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from rankscope.trace.columns import RankTrace
from rankscope.trace.files.find import Candidate

__all__ = ["assign_windows", "left_alone", "main_process", "other_processes", "overlapping"]

Span = tuple[int, int]


def assign_windows(
    read: Sequence[tuple[Candidate, RankTrace]],
) -> Iterator[tuple[RankTrace, str | None]]:
    """Set ``attempt`` and ``window`` of each trace.

    Yields:
        Each trace with None, or with the file that has its rank and window: of several, the one with most events.
    """
    foreign = [trace for candidate, trace in read if candidate.window is None]
    numbers = iter(_number(foreign))
    taken: dict[tuple[int, int, int | None], RankTrace] = {}
    for candidate, trace in read:
        if candidate.window is None:
            trace.attempt, trace.window = 0, next(numbers)
        else:
            trace.attempt, trace.window = candidate.attempt or 0, candidate.window
        rival = taken.setdefault((trace.attempt, trace.window, trace.rank), trace)
        if len(trace.events) > len(rival.events):
            taken[(trace.attempt, trace.window, trace.rank)] = trace
    for _, trace in read:
        rival = taken[(trace.attempt, trace.window, trace.rank)]
        yield trace, None if rival is trace else rival.source


def left_alone(traces: Sequence[RankTrace]) -> list[RankTrace]:
    """Return the traces of another run of the job: each the only one of its window, and by another process than the
    trace of its rank in a window of several ranks.

    Nothing can be compared in such a window, so its steps would only change the means of the job.
    """
    windows: dict[int, list[RankTrace]] = {}
    for trace in traces:
        windows.setdefault(trace.window, []).append(trace)
    processes: dict[int | None, set[int]] = {}
    for own in windows.values():
        for trace in own if len(own) > 1 else ():
            processes.setdefault(trace.rank, set()).add(main_process(trace))
    single = [own[0] for own in windows.values() if len(own) == 1]
    return [t for t in single if t.rank in processes and main_process(t) not in {-1, *processes[t.rank]}]


def other_processes(traces: Sequence[RankTrace]) -> list[str]:
    """Return a remark on windows in which every rank is another process than in the window before.

    The job was restarted, or the files are of two jobs of equal size; the files do not show which.
    """
    ranks: dict[tuple[int, int], dict[int | None, int]] = {}
    for trace in traces:
        ranks.setdefault((trace.attempt, trace.window), {})[trace.rank] = main_process(trace)
    windows = sorted(ranks)
    found = []
    for before, after in pairwise(windows):
        shared = [r for r in ranks[after] if r in ranks[before] and -1 not in (ranks[before][r], ranks[after][r])]
        if len(shared) > 1 and all(ranks[before][r] != ranks[after][r] for r in shared):
            found.append(
                f"the ranks of window {after[1]} are other processes than those of window {before[1]}: the job was "
                "started again, or these are two jobs of the same size; then analyse each by itself"
            )
    return found


def main_process(trace: RankTrace) -> int:
    """Return the id of the process with most host events, -1 if there are none."""
    host = trace.events.pid[trace.events.stream < 0]
    if not len(host):
        return -1
    if (host == host[0]).all():
        return int(host[0])
    values, counts = np.unique(host, return_counts=True)
    return int(values[counts.argmax()])


def overlapping(traces: Sequence[RankTrace]) -> list[int]:
    """Return, for each recording, the number of the period in which it overlaps with others, in order of time."""
    return _clusters([_times(t) for t in traces])


def _number(traces: list[RankTrace]) -> list[int]:
    """Return the window of each trace: 0 for all, unless a rank has several files."""
    ranks = Counter(t.rank for t in traces)
    if not traces or ranks.most_common(1)[0][1] == 1:
        return [0] * len(traces)
    by_steps = _clusters([_steps(t) for t in traces]) if all(len(t.steps) for t in traces) else None
    by_time = _clusters([_times(t) for t in traces])
    choices = [c for c in (by_steps, by_time) if c is not None]
    for choice in choices:
        if len({(t.rank, w) for t, w in zip(traces, choice, strict=True)}) == len(traces):
            return choice
    # some rank occurs twice: use the grouping that explains most files
    return max(choices, key=lambda c: len({(t.rank, w) for t, w in zip(traces, c, strict=True)}))


def _clusters(spans: list[Span]) -> list[int]:
    """Number groups of overlapping spans in order."""
    result = [0] * len(spans)
    number, end = -1, None
    for i in sorted(range(len(spans)), key=lambda i: spans[i]):
        if end is None or spans[i][0] > end:
            number += 1
            end = spans[i][1]
        end = max(end, spans[i][1])
        result[i] = number
    return result


def _steps(trace: RankTrace) -> Span:
    return int(trace.steps.number.min()), int(trace.steps.number.max())


def _times(trace: RankTrace) -> Span:
    return int(trace.events.start[0]), int(trace.events.end.max())
