"""Estimate the clock offset of two ranks from a pairing of their calls, some pairs of which may be wrong.

Calls that end at the same time show the offset of two clocks. Next to a lost record, calls of one kind and size are
paired with their neighbours, and the offsets of the pairs in a step scatter by the intervals between calls. The steps
that both ranks recorded completely are therefore used first, and of the others those whose offsets scatter little.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.sequences import CallSequence, Pairs
from rankscope.statistics.medians import medians_by_key

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
"""Lower bound on clock scatter, in ns: the ends of one call do not agree better than this."""

ENDS_NS = 25_000.0
"""The ends of one NCCL call agree within this on one host, in ns (measured)."""

ODDS = 3.1
"""Standard deviations from the expected value beyond which a deviation counts as significant (one-sided p = 0.001)."""

MOST_DRIFT = 3e-4
"""Largest drift of one clock against another, in seconds per second. Computer clocks drift less."""

CLEAN_STEPS = 3
"""Number of completely recorded steps from which on these alone determine the clock. A median of fewer than three
values cannot outvote an outlier."""

SMOOTH = 9
"""Number of neighbouring calls whose median smooths the offsets: it tolerates four outliers of nine."""


MOST_LOST = 8
"""Largest shift of calls within a step that is tried: how many more records one rank may have lost than the other."""

STEADY = 1.163
"""Relative standard deviation of the median absolute deviation (MAD) of n normal values, times sqrt(n). The efficiency
of the MAD is 37 %, so that this is 1 / sqrt(2 x 0.37). It says how much the scatter within a step varies by chance."""

QUARTILE = 0.674
"""Distance of the lower quartile of normal values from their median, in standard deviations."""


def showing(one: CallSequence, places: I64) -> I64:
    """Select the calls that show the clocks best: symmetric ones, else those that overlap, else all.

    Args:
        one: a sequence.
        places: indices into ``one``, shape (n,).

    Returns:
        Indices into ``places``.
    """
    for mask in (one.symmetric, one.together):
        shown = np.flatnonzero(mask[places])
        if len(shown) >= max(3, len(places) // 8):
            return shown
    return np.arange(len(places))


def trend(when: F64, apart: F64) -> F64:
    """Drift of one clock against the other since the middle of the window, in ns, by the median slope between its
    halves."""
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
    """Estimate the offset of the clock of ``other`` against that of ``one``.

    Args:
        one: a sequence.
        other: the sequence of another rank.
        pairs: indices of the paired calls.
        settled: whether the pairs were made with a known clock offset, so that all of them can be trusted.
        trusted: whether each pair was made by an identity of its own, so that pairs in complete steps are right.

    Returns:
        What to add to each time of ``other``, shape (calls of ``other``,), and its scatter, both in ns.
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
    """Find the constant clock offset, in ns, at which most calls of equal steps end at the same time.

    It needs no pairing. The ends of all calls that may be the same are compared: differences of right pairs agree, and
    those of wrong pairs scatter by the intervals between calls.

    Args:
        one: a sequence.
        other: the sequence of another rank.
        step: step numbers of ``other``, in the numbering of ``one``.

    Returns:
        What to add to the times of ``other``; None where too few calls are available.
    """
    symmetric = min(int(one.symmetric.sum()), int(other.symmetric.sum())) >= CLEAN_STEPS
    shows = (one.symmetric, other.symmetric) if symmetric else (one.together, other.together)
    mine, theirs = np.flatnonzero(shows[0] & (one.step >= 0)), np.flatnonzero(shows[1] & (step >= 0))
    if len(mine) < CLEAN_STEPS or len(theirs) < CLEAN_STEPS:
        return None
    # Position of a call within its step. Each record that is missing before it shifts it by one.
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
    """Whether the pairs of complete steps suffice to estimate the clock: no other step exists, or they cover enough
    steps."""
    return bool(clean.any()) and (bool(clean.all()) or len(np.unique(step[clean])) >= CLEAN_STEPS)


def _clean(one: CallSequence, other: CallSequence, pairs: Pairs) -> Mask:
    """Select the pairs of steps that both ranks recorded completely; all pairs where calls have no step.

    In a step with a lost record, calls of one kind and size are paired with their neighbours until the clock is known.
    """
    a, b = pairs
    if not (one.step[a] >= 0).all() or len(a) == len(one) == len(other):
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
    """Smooth the offsets of pairs: a linear drift, plus the median residual of neighbouring pairs.

    Where there are steps, neighbours are steps. All pairs of a step may be wrong together. Their offsets then differ by
    the intervals between calls, and the level of the step is interpolated from the steps around it. A clock that was
    set (a jump) stays a jump.
    """
    drift = trend(one.end[places].astype(np.float64), apart)
    rest, step = apart - drift, one.step[places]
    if not (step >= 0).all() or not len(step):
        return drift + running_median(rest, SMOOTH)
    number, which = np.unique(step, return_inverse=True)
    which = which.reshape(-1)
    count = np.bincount(which)
    middle = medians_by_key(which, rest, len(count))
    within = medians_by_key(which, np.abs(rest - middle[which]), len(count))
    steadier = float(np.quantile(within, 0.25))
    sound = np.flatnonzero(within <= _by_chance(count) * steadier + CERTAIN_NS)
    level = np.interp(np.arange(len(number)), sound, running_median(middle[sound], 3))
    return drift + _with_jumps(rest, which, level, sound)


def _with_jumps(rest: F64, which: I64, level: F64, sound: I64) -> F64:
    """Return the level of each pair's step; where a clock was set within a step, the levels before and after the jump.

    Args:
        rest: offsets of the pairs without drift, in ns, in order of time.
        which: index of each pair's step.
        level: offset of each step, in ns.
        sound: indices of the steps whose offsets scatter little.
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
    """Greatest plausible scatter of a step with only right pairs, in multiples of the lower quartile over the steps.

    The MAD of n right pairs has a relative standard deviation of ``STEADY / sqrt(n)``, and its lower quartile lies
    below its median by ``QUARTILE`` of these. The factor is 8 for two pairs and 2.4 for 16.
    """
    own = STEADY / np.sqrt(np.maximum(count, 1).astype(np.float64))
    return np.asarray((1.0 + ODDS * own) / np.maximum(1.0 - QUARTILE * own, STEADY / ODDS / 2))


def running_median(values: F64, width: int) -> F64:
    """Running median over ``width`` values, an odd number; with fewer values, the median of all."""
    if len(values) < width:
        return np.full(len(values), float(np.median(values)))
    # The edges are mirrored, so that a wrong value at an edge does not outvote its neighbours.
    padded = np.pad(values, width // 2, mode="reflect")
    around = np.lib.stride_tricks.sliding_window_view(padded, width)
    return np.asarray(np.partition(around, width // 2, axis=1)[:, width // 2])


def densest(values: F64) -> float:
    """Return the median of the shortest interval that holds a third of the values, since most of the others may be
    wrong."""
    ordered = np.sort(values)
    count = max(len(ordered) // 3, 1)
    if len(ordered) < 3:
        return float(np.median(ordered))
    width = ordered[count:] - ordered[:-count]
    low = int(np.argmin(width))
    return float(np.median(ordered[low : low + count + 1]))
