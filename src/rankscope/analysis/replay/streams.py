"""Order of the work on the streams of one device: what runs after what. Times are in ns of the aligned clock."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROUNDING_NS", "last_before", "previous_of_unlaunched", "without_rounding"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

ROUNDING_NS = 1_000
"""Error of times in older traces, in ns: these have whole microseconds."""


def without_rounding(begin: F64, end: F64, stream: NDArray[np.int32]) -> F64:
    """Correct ends that exceed the next begin on their stream because times were rounded to whole microseconds.

    A stream runs one piece after the other. Without the correction, the later piece would seem not to have waited.
    """
    order = np.lexsort((begin, stream))
    before, after = order[:-1], order[1:]
    over = end[before] - begin[after]
    rounded = (stream[before] == stream[after]) & (over > 0) & (over <= ROUNDING_NS) & (begin[before] < begin[after])
    end = end.copy()
    end[before[rounded]] = begin[after[rounded]]
    return end


def previous_of_unlaunched(
    begin: F64, end: F64, stream: NDArray[np.int32], launched: NDArray[np.bool_]
) -> tuple[I64, I64]:
    """Find the pieces whose launch is missing from the trace, and for each the last earlier piece of its stream.

    Streams run in order of launch. A piece without a launch that follows a launched one was therefore launched in the
    window, and its launch was lost. If it were kept at its recorded time, it would hold all ranks of its call there, so
    it follows the earlier piece instead.
    """
    piece, previous = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number in np.unique(stream[~launched]).tolist():
        mine = np.flatnonzero(stream == number)
        known = mine[launched[mine]]
        if not len(known):
            continue
        own = mine[~launched[mine] & (begin[mine] > begin[known].min())]
        by_end = mine[np.argsort(end[mine], kind="stable")]
        before = by_end[np.searchsorted(end[by_end], begin[own], side="right") - 1]
        follows = (end[before] <= begin[own]) & (begin[before] < begin[own])
        piece.append(own[follows])
        previous.append(before[follows])
    return np.concatenate(piece), np.concatenate(previous)


def last_before(pieces: I64, end: F64, turn: I64, begin: F64, until: I64) -> I64:
    """For each launched piece (in order of launch), find the last to end among ``pieces`` launched before the turn
    ``until``.

    Only pieces that ended before it begins count; -1 for none.
    """
    order = pieces[np.lexsort((turn[pieces], end[pieces]))]
    own = turn[order]
    place = np.searchsorted(end[order], begin, side="right") - 1
    # Streams run in order of launch: the last piece launched earlier is the answer unless it ended too late.
    least = np.minimum.accumulate(own[::-1])[::-1]
    place = np.minimum(place, np.searchsorted(least, until, side="left") - 1)
    while len(wrong := np.flatnonzero((place >= 0) & (own[place] >= until))):
        place[wrong] -= 1
    return np.where(place >= 0, order[place], -1)
