"""How far apart two ranks' clocks are, as the pairs of a hypothesis say of which some may be wrong.

Pairs of calls that ended together show the distance of two clocks. Next to a lost record, calls of one kind and size
are paired with their neighbours: then the distances of a step scatter by the intervals between calls. So the steps that
both ranks recorded whole are asked first, and of the others those whose distances are steady.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.sequences import CallSequence, Pairs

__all__ = [
    "CERTAIN_NS",
    "CLEAN_STEPS",
    "ENDS_NS",
    "ODDS",
    "SMOOTH",
    "clock_of",
    "densest",
    "most_end_together",
    "running_median",
    "showing",
    "trend",
]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

CERTAIN_NS = 1_000.0
"""Not even the ends of one call agree better."""

ENDS_NS = 25_000.0
"""The ends of one NCCL call agree within this on one host (measured)."""

ODDS = 3.1
"""Standard deviations (one-sided, p = 0.001) by which something must stand out to be believed."""

MOST_DRIFT = 3e-4
"""No clock of a computer runs off faster."""

CLEAN_STEPS = 3
"""Whole steps from which on the clock is told by these alone: the median of fewer is the word of one of them."""

SMOOTH = 9
"""Calls over which the distance of two clocks is smoothed: lost records disturb four of them at most."""


MOST_LOST = 8
"""Records by which two ranks' counts within a step may be apart."""

STEADY = 1.163
"""Standard deviation of the median deviation of n normal values, over itself and times the root of n (its efficiency is
37 %): how much the scatter of a step's distances differs from step to step by chance."""

QUARTILE = 0.674
"""Standard deviations by which a quarter of normal values lies below the median."""


def showing(one: CallSequence, places: I64) -> I64:
    """Which of the calls show the clocks best: those that end together, where enough of them do."""
    for mask in (one.symmetric, one.together):
        shown = np.flatnonzero(mask[places])
        if len(shown) >= max(3, len(places) // 8):
            return shown
    return np.arange(len(places))


def trend(when: F64, apart: F64) -> F64:
    """The drift of one clock against the other: median slope between the halves of the window."""
    half = len(when) // 2
    if half < 6:
        return np.zeros(len(when))
    spread = when[-half:] - when[:half]
    if not (spread > 0).all():
        return np.zeros(len(when))
    slope = float(np.median((apart[-half:] - apart[:half]) / spread))
    return np.asarray((when - when[half]) * min(max(slope, -MOST_DRIFT), MOST_DRIFT))


def clock_of(
    one: CallSequence, other: CallSequence, pairs: Pairs, *, settled: bool, trusted: bool
) -> tuple[F64, float]:
    """(what to add to each time of ``other``, how well it is known), ns.

    Args:
        one: a sequence.
        other: another rank's.
        pairs: of their calls.
        settled: the pairs were made with a clock known before, and may all be believed.
        trusted: they were made call by call, so that those of whole steps are right.
    """
    a, b = pairs
    shown = showing(one, a)
    a, b = a[shown], b[shown]
    apart = (one.end[a] - other.end[b]).astype(np.float64)
    clean = np.zeros(len(shown), np.bool_) if settled or not trusted else _clean(one, other, pairs)[shown]
    if settled or _suffices(clean, one.step[a]):
        if not settled:
            a, b, apart = a[clean], b[clean], apart[clean]
        smooth = _smoothed(one, a, apart)
    else:
        smooth = np.full(len(apart), densest(apart))
        near = np.abs(apart - smooth) <= max(ENDS_NS, 3.0 * float(np.quantile(np.abs(apart - smooth), 1 / 3)))
        a, b, apart, smooth = a[near], b[near], apart[near], np.full(int(near.sum()), float(np.median(apart[near])))
    at = other.end[b].astype(np.float64)
    order = np.argsort(at, kind="stable")
    ahead = np.interp(other.end.astype(np.float64), at[order], smooth[order])
    scatter = 1.4826 * float(np.median(np.abs(apart - smooth)))
    return ahead, max(scatter, CERTAIN_NS)


def most_end_together(one: CallSequence, other: CallSequence, step: I64) -> float | None:
    """What to add to the times of ``other``, ns, for most calls of equal steps to end together; None where too few do.

    Nothing is paired for it: ends of all calls that may be the same are compared, of which the right ones agree and
    the others differ as the intervals between calls do.

    Args:
        one: a sequence.
        other: another rank's.
        step: steps of ``other`` in the numbers of ``one``.
    """
    symmetric = min(int(one.symmetric.sum()), int(other.symmetric.sum())) >= CLEAN_STEPS
    shows = (one.symmetric, other.symmetric) if symmetric else (one.together, other.together)
    mine, theirs = np.flatnonzero(shows[0] & (one.step >= 0)), np.flatnonzero(shows[1] & (step >= 0))
    if len(mine) < CLEAN_STEPS or len(theirs) < CLEAN_STEPS:
        return None
    # places of a call from the beginning of its step: records missing before it move it by as many
    if (np.diff(one.step[mine]) < 0).any() or (np.diff(step[theirs]) < 0).any():
        return None
    begins = np.searchsorted(step[theirs], one.step[mine], side="left")
    ends = np.searchsorted(step[theirs], one.step[mine], side="right")
    place = np.arange(len(mine)) - np.searchsorted(one.step[mine], one.step[mine])
    apart = []
    for moved in range(-MOST_LOST, MOST_LOST + 1):
        at = begins + place + moved
        valid = np.flatnonzero((at >= begins) & (at < ends))
        a, b = mine[valid], theirs[at[valid]]
        same = one.must[a] == other.must[b]
        apart.append((one.end[a] - other.end[b])[same])
    values = np.sort(np.concatenate(apart)).astype(np.float64)
    if len(values) < CLEAN_STEPS:
        return None
    count = np.searchsorted(values, values + 2 * ENDS_NS, side="right") - np.arange(len(values))
    low = int(np.argmax(count))
    return float(np.median(values[low : low + int(count[low])]))


def _suffices(clean: Mask, step: I64) -> bool:
    """Whether the pairs of whole steps tell the clock by themselves: there is no other step, or there are enough."""
    return bool(clean.any()) and (bool(clean.all()) or len(np.unique(step[clean])) >= CLEAN_STEPS)


def _clean(one: CallSequence, other: CallSequence, pairs: Pairs) -> Mask:
    """Pairs of steps that both have with all their calls; all pairs where there are no steps.

    In a step that lost a record, calls of one kind and size are paired with their neighbours until the clock is known.
    """
    a, b = pairs
    if not (one.step[a] >= 0).all():
        return np.ones(len(a), np.bool_)
    step, paired = np.unique(one.step[a], return_counts=True)
    mine, own = np.unique(one.step, return_counts=True)
    theirs, others = np.unique(other.step[b], return_counts=True)
    every, recorded = np.unique(other.step, return_counts=True)
    whole_here = own[np.searchsorted(mine, step)] == paired
    whole_there = recorded[np.searchsorted(every, theirs)] == others
    return np.asarray(
        whole_here[np.searchsorted(step, one.step[a])] & whole_there[np.searchsorted(theirs, other.step[b])]
    )


def _smoothed(one: CallSequence, places: I64, apart: F64) -> F64:
    """The distance of two clocks along pairs: a drift, and what the median of neighbours departs from it.

    Steps are neighbours where there are any. All pairs of a step may be wrong together: then their distances differ as
    the intervals between calls do, and the steps around it are asked. A clock that was set stays a jump.
    """
    drift = trend(one.end[places].astype(np.float64), apart)
    rest, step = apart - drift, one.step[places]
    if not (step >= 0).all() or not len(step):
        return drift + running_median(rest, SMOOTH)
    number, which = np.unique(step, return_inverse=True)
    which = which.reshape(-1)
    count = np.bincount(which)
    middle = _medians(rest, which, count)
    within = _medians(np.abs(rest - middle[which]), which, count)
    steadier = float(np.quantile(within, 0.25))
    sound = np.flatnonzero(within <= _by_chance(count) * steadier + CERTAIN_NS)
    level = np.interp(np.arange(len(number)), sound, running_median(middle[sound], 3))
    return drift + _with_jumps(rest, which, level, sound)


def _medians(values: F64, which: I64, count: I64) -> F64:
    """Median of the values of each group; ``count``: how many each has, none of them 0."""
    ordered = values[np.lexsort((values, which))]
    first = np.cumsum(count) - count
    return np.asarray((ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2)


def _with_jumps(rest: F64, which: I64, level: F64, sound: I64) -> F64:
    """The level of each pair's step; where a clock was set within a step, that before it and then that after it.

    Args:
        rest: distances of pairs in order of time, the drift taken out.
        which: step of each.
        level: of each step.
        sound: steps that are steady in themselves.
    """
    smooth = level[which]
    before = np.searchsorted(sound, np.arange(len(level)), side="left") - 1
    after = np.searchsorted(sound, np.arange(len(level)), side="right")
    for step in np.flatnonzero((before >= 0) & (after < len(sound))).tolist():
        low, high = float(level[sound[before[step]]]), float(level[sound[after[step]]])
        if abs(high - low) <= ENDS_NS:
            continue
        mine = np.flatnonzero(which == step)
        off = np.abs(rest[mine] - low), np.abs(rest[mine] - high)
        first = np.concatenate(([0.0], np.cumsum(off[0]))) + np.concatenate((np.cumsum(off[1][::-1])[::-1], [0.0]))
        cut = int(np.argmin(first))
        parted = np.where(np.arange(len(mine)) < cut, low, high)
        if np.abs(rest[mine] - parted).sum() < np.abs(rest[mine] - smooth[mine]).sum():
            smooth[mine] = parted
    return smooth


def _by_chance(count: I64) -> F64:
    """How many times the scatter of the steadier quarter of the steps a step's may be whose pairs are all right.

    Of n right pairs the median deviation itself scatters by ``STEADY / sqrt(n)``; the steadier quarter lies below what
    is usual by as much. Of two pairs that allows 8 times, of 16 2.4 times.
    """
    own = STEADY / np.sqrt(np.maximum(count, 1).astype(np.float64))
    return np.asarray((1.0 + ODDS * own) / np.maximum(1.0 - QUARTILE * own, STEADY / ODDS / 2))


def running_median(values: F64, width: int) -> F64:
    """Median of each value and its neighbours, ``width`` in all, an odd number; of fewer values that of all."""
    if len(values) < width:
        return np.full(len(values), float(np.median(values)))
    # mirrored, since a wrong value at the edge must not outvote its neighbours
    padded = np.pad(values, width // 2, mode="reflect")
    around = np.lib.stride_tricks.sliding_window_view(padded, width)
    return np.asarray(np.partition(around, width // 2, axis=1)[:, width // 2])


def densest(values: F64) -> float:
    """Middle of the shortest interval that holds a third of the values: most of the rest may be wrong."""
    ordered = np.sort(values)
    count = max(len(ordered) // 3, 1)
    if len(ordered) < 3:
        return float(np.median(ordered))
    width = ordered[count:] - ordered[:-count]
    low = int(np.argmin(width))
    return float(np.median(ordered[low : low + count + 1]))
