"""Ends of device work that seem to lie after the begin of what waited for them, since times are rounded.

A start and a duration are rounded each, so that their sum may exceed the start of the next piece by a little. Replays
find what a piece waited for among the work that ended before it began: a wait that is missed for a nanosecond is a
delay that no other rank's work seems to explain.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope.analysis.rank.select import distinct
from rankscope.trace.columns import RankTrace

__all__ = ["without_rounding"]

DIGITS = 2
"""Error of an end against the begin of the next piece, in units of the last digit: a start, a duration and the other
start are off by half of one each."""
CONVERSION_NS = 2
"""Error of an end from the conversion of floating-point numbers, in ns."""
MOST_NS = 1_000
"""Largest error, in ns: older traces have whole microseconds."""


def without_rounding(trace: RankTrace) -> RankTrace:
    """End each piece of device work no later than the begin of one that starts within the error of its end."""
    events = trace.events
    rows = np.flatnonzero((events.stream >= 0) & (events.duration > 0))
    if len(rows) < 2:
        return trace
    begin, length = events.start[rows], events.duration[rows]
    digit = int(np.gcd(np.gcd.reduce(np.diff(begin)), np.gcd.reduce(length)))
    error = min(DIGITS * digit + CONVERSION_NS, MOST_NS)
    duration = events.duration
    pid = events.pid[rows]
    for device in distinct(pid).tolist():
        mine = np.flatnonzero(pid == device)
        starts = begin[mine]  # ascending, as events are
        ends = starts + length[mine]
        both = np.flatnonzero(starts[1:] < ends[:-1])  # the others end before the next one begins
        following = np.searchsorted(starts, np.maximum(ends[both] - error, starts[both] + 1))
        until = np.append(starts, np.iinfo(np.int64).max)[following]
        over = until < ends[both]
        if over.any():
            duration = duration.copy() if duration is events.duration else duration
            duration[rows[mine[both[over]]]] = (until - starts[both])[over]
    return trace if duration is events.duration else replace(trace, events=replace(events, duration=duration))
