"""Find the pairing of two ranks' calls that explains most of what was recorded.

Communication ids, sequence numbers and step numbers are evidence that may be wrong: they restart, count other calls
too, or hash values that differ between ranks. Each is a hypothesis, as is plain order. A hypothesis is rated by the
calls it pairs without gaps, and by the scatter of the differences between paired ends. The ends of one call differ by
the clock offset of the two ranks, whatever it is; those of wrong pairs scatter by the intervals between calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.pair_clocks import (
    CERTAIN_NS,
    ENDS_NS,
    ODDS,
    clock_of,
    densest,
    most_end_together,
    showing,
    trend,
)
from rankscope.analysis.matching.sequences import (
    NOTHING,
    CallSequence,
    Pairs,
    by_key,
    by_step,
    by_time,
)

__all__ = ["COMMS_ID", "ORDER", "SEQ", "Hypothesis", "agrees", "best_pairing"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

COMMS_ID, SEQ, STEPS, ORDER = "comms_id", "seq", "steps", "order"

ONE_CLOCK_NS = 50_000.0
"""Largest distance of ends, in ns and without correction, at which two ranks are taken to read one clock. Two unrelated
clocks are that close by chance in one of a thousand cases, if steps take 100 ms."""

MAX_SHIFT = 16
"""Largest number of calls or steps by which two windows are shifted where order alone identifies a call."""

LOOKED_AT = 4
"""Number of shifts that are refined with the clock offsets they imply."""

STEP_SHIFTS = 3
"""Largest number of steps by which two equal step numberings are shifted, in both directions."""

LEAST_SHARE = 0.5
"""Least share of the shorter sequence that a pairing has to cover."""


@dataclass(slots=True)
class Hypothesis:
    """A pairing, and how well it explains what was recorded."""

    name: str
    pairs: Pairs
    gaps: int = 0
    """Number of unpaired calls between the first and the last pair, on both sides."""
    spread: float = np.inf
    """Scatter of the differences between paired ends without linear drift, in ns."""
    apart: float = 0.0
    """Median difference between paired ends, in ns."""
    independent: int = 0
    """Number of steps (of calls, where there are none) that determine the scatter. Within a step, a wrong pairing may
    scatter as little as the right one."""
    settled: bool = False
    """Whether the pairs were made with the clock offset it implies, so that each of them can be trusted."""
    trusted: bool = True
    """Whether each pair is identified independently. A shift by calls is right for a part of the window only once a
    record is lost."""

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.pairs[0])


def best_pairing(one: CallSequence, other: CallSequence) -> Hypothesis:
    """Return the pairing that explains most; of size 0 where none explains anything."""
    identities = [
        Hypothesis(COMMS_ID, _said(one, other, "comms_id")),
        Hypothesis(SEQ, _said(one, other, "seq")),
        Hypothesis(STEPS, by_step(one, other, other.step)),
    ]
    found = [_judged(h, one, other) for h in identities if len(h.pairs[0])]
    shifts = [_judged(h, one, other) for h in _shifted(one, other) if len(h.pairs[0])]
    found += _promising(shifts, one, other)
    refined = [r for h in found for r in _both_ways(h, one, other)]
    usable = [h for h in refined if h.size >= LEAST_SHARE * min(len(one), len(other))]
    usable = [h for h in usable if h.gaps <= LEAST_SHARE * 2 * h.size]
    if not usable:
        return Hypothesis("none", NOTHING)
    return _chosen(usable)


def _said(one: CallSequence, other: CallSequence, what: str) -> Pairs:
    """Pair by an identity and drop pairs that disagree in ``must``; no pairs if more than one in ten disagrees."""
    if what == "comms_id":
        columns = (one.comms_id, one.seq, one.must), (other.comms_id, other.seq, other.must)
    else:
        columns = (one.seq, one.seq, one.seq), (other.seq, other.seq, other.seq)
    known = columns[0][0] >= 0, columns[1][0] >= 0
    if not known[0].any() or not known[1].any():
        return NOTHING
    first, second = np.flatnonzero(known[0]), np.flatnonzero(known[1])
    a, b = by_key([c[first] for c in columns[0]], [c[second] for c in columns[1]])
    a, b = first[a], second[b]
    same = one.must[a] == other.must[b]
    return (a[same], b[same]) if same.sum() >= 0.9 * len(same) else NOTHING


def _shifted(one: CallSequence, other: CallSequence) -> list[Hypothesis]:
    """Pair by order alone: by whole steps, and by calls counted from the end of the windows, each at several shifts."""
    found = []
    mine, theirs = np.unique(one.step[one.step >= 0]), np.unique(other.step[other.step >= 0])
    if len(mine) and len(theirs):
        for shift in sorted(range(-MAX_SHIFT, MAX_SHIFT + 1), key=abs):
            common = min(len(mine) - max(shift, 0), len(theirs) - max(-shift, 0))
            if common < max(1, LEAST_SHARE * min(len(mine), len(theirs))):
                continue
            renumbered = np.full(len(other), -1, np.int64)
            inside = other.step >= 0
            place = np.searchsorted(theirs, other.step[inside]) + shift
            known = (place >= 0) & (place < len(mine))
            renumbered[np.flatnonzero(inside)[known]] = mine[place[known]]
            found.append(Hypothesis(ORDER, by_step(one, other, renumbered), trusted=True))
    for shift in sorted(range(-MAX_SHIFT, MAX_SHIFT + 1), key=abs):
        last_a, last_b = len(one) + min(shift, 0), len(other) - max(shift, 0)
        count = min(last_a, last_b)
        if count < 1 or count < LEAST_SHARE * min(len(one), len(other)):
            continue
        a, b = np.arange(last_a - count, last_a), np.arange(last_b - count, last_b)
        same = one.must[a] == other.must[b]
        if same.sum() >= LEAST_SHARE * count:
            found.append(Hypothesis(ORDER, (a[same], b[same]), trusted=False))
    return found


def _promising(shifts: list[Hypothesis], one: CallSequence, other: CallSequence) -> list[Hypothesis]:
    """Return the shifts to refine: the smallest, and those in which a third of the calls fits best."""
    if len(shifts) <= LOOKED_AT:
        return shifts
    fit = []
    for shift in shifts:
        a, b = shift.pairs
        apart = (one.end[a] - other.end[b]).astype(np.float64)
        fit.append(float(np.quantile(np.abs(apart - densest(apart)), 1 / 3)))
    steadiest = np.argsort(fit, kind="stable")[: LOOKED_AT - 1].tolist()
    return [shifts[n] for n in sorted({0, *steadiest})]


def _judged(hypothesis: Hypothesis, one: CallSequence, other: CallSequence) -> Hypothesis:
    a, b = hypothesis.pairs
    if not len(a):
        return hypothesis
    inside = (int(a[-1] - a[0]) + 1 - len(a)) + (int(b[-1] - b[0]) + 1 - len(b))
    shown = showing(one, a)
    apart = (one.end[a[shown]] - other.end[b[shown]]).astype(np.float64)
    when = one.end[a[shown]].astype(np.float64)
    steps = one.step[a[shown]]
    count = len(np.unique(steps)) if (steps >= 0).all() else len(apart)
    middle = float(np.median(apart))
    residual = apart - middle - trend(when, apart)
    spread = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    judged = replace(hypothesis, gaps=inside, spread=spread, apart=middle, independent=count)
    if judged.trusted and not inside and spread > ENDS_NS:
        # A clock that was set leaves every call in its place: differences scatter little before and after the jump.
        scatter = _clock(one, other, judged)[1]
        judged.spread = scatter if scatter <= ENDS_NS else spread
    return judged


def _both_ways(hypothesis: Hypothesis, one: CallSequence, other: CallSequence) -> list[Hypothesis]:
    """Return the refined hypothesis, and a second refinement where records are missing from its steps.

    The second starts from the clock offset at which most calls of these steps end together. It is needed because few
    pairs in order are right where both ranks lost some records of each step.
    """
    refined = [_refined(hypothesis, one, other)]
    by_steps = hypothesis.trusted and hypothesis.name in (STEPS, ORDER)
    if by_steps and hypothesis.gaps and (one.step[hypothesis.pairs[0]] >= 0).all():
        ahead = most_end_together(one, other, _renumbered(one, other, hypothesis))
        if ahead is not None:
            refined.append(_refined(hypothesis, one, other, ahead))
    return refined


def _refined(hypothesis: Hypothesis, one: CallSequence, other: CallSequence, known: float | None = None) -> Hypothesis:
    """Pair the calls that ran at the same time, by the clock offset that the hypothesis implies.

    A pairing that fits is left as it is: one late end is no reason to split a call.

    Args:
        hypothesis: the pairing to refine.
        one: a sequence.
        other: the sequence of another rank.
        known: clock offset to begin with, what to add to the times of ``other`` in ns; None: estimate it from the
            pairs.
    """
    found = hypothesis
    for turn in range(3):
        a, b = found.pairs
        if not len(a):
            return found
        if found.trusted and not found.gaps and _overlap(one, other, found):
            return found
        ahead, scatter = _clock(one, other, found)
        if known is not None and not turn:
            ahead, scatter = np.full(len(other), known), CERTAIN_NS
        step = _renumbered(one, other, found) if found.trusted else None
        slack = max(3.0 * scatter, ENDS_NS)
        overlapping = one.together | _met(one, other, found.pairs, ahead, slack)
        pairs = by_time(one, other, ahead, (scatter, slack), overlapping, step)
        again = _judged(replace(found, pairs=pairs, settled=True), one, other)
        if np.array_equal(pairs[0], a) and np.array_equal(pairs[1], b):
            return again
        found = again
    return found


def _clock(one: CallSequence, other: CallSequence, found: Hypothesis) -> tuple[F64, float]:
    return clock_of(one, other, found.pairs, settled=found.settled, trusted=found.trusted)


def _met(one: CallSequence, other: CallSequence, pairs: Pairs, ahead: F64, slack: float) -> bool:
    """Whether calls that need not overlap in time mostly do in this job, as large messages do.

    Next to lost records some pairs are wrong, but more are right.
    """
    a, b = pairs
    loose = ~one.together[a]
    a, b = a[loose], b[loose]
    apart = ((other.start + ahead)[b] - one.end[a] > slack) | (one.start[a] - (other.end + ahead)[b] > slack)
    return bool(len(a)) and float(apart.mean()) < 0.5


def _overlap(one: CallSequence, other: CallSequence, hypothesis: Hypothesis) -> bool:
    """Whether all pairs that have to overlap in time do. Scattered ends, as of CPU backends, contradict no pairing."""
    a, b = hypothesis.pairs
    ahead, scatter = _clock(one, other, hypothesis)
    if scatter > ENDS_NS:
        return True
    slack = max(3.0 * scatter, ENDS_NS)
    late = (other.start + ahead)[b] - one.end[a] > slack
    early = one.start[a] - (other.end + ahead)[b] > slack
    return not bool(((late | early) & one.together[a]).any())


def _renumbered(one: CallSequence, other: CallSequence, hypothesis: Hypothesis) -> I64:
    """Step numbers of ``other`` in the numbering of ``one``, by the majority of the pairs."""
    a, b = hypothesis.pairs
    known = (one.step[a] >= 0) & (other.step[b] >= 0)
    if not known.any():
        return other.step
    values, counts = np.unique(one.step[a[known]] - other.step[b[known]], return_counts=True)
    return np.where(other.step >= 0, other.step + values[np.argmax(counts)], -1)


def _chosen(usable: list[Hypothesis]) -> Hypothesis:
    """Return the first hypothesis that no other significantly beats."""
    most = max(h.size for h in usable)
    usable = [h for h in usable if h.size >= LEAST_SHARE * most]
    standing = [h for h in usable if not any(_unseats(other, h) for other in usable)]
    standing = standing or usable
    at_once = [h for h in standing if abs(h.apart) <= ONE_CLOCK_NS + h.spread]
    if at_once and len(at_once) < len(standing):
        standing = at_once
    best = max(standing, key=lambda h: h.size - h.gaps)
    return next(h for h in standing if h is best or not _leaves_more(h, best))


def _leaves_more(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether ``one`` leaves a significantly larger share of the calls that it spans unpaired than ``other``.

    Calls before its first and after its last pair do not count: windows that open at different times have less in
    common.
    """
    spanned = np.array([2 * h.size + h.gaps for h in (one, other)], np.float64)
    alone = np.array([h.gaps for h in (one, other)], np.float64)
    share = float(alone.sum() / spanned.sum())
    error = np.sqrt(share * (1.0 - share) * (1.0 / spanned).sum())
    first, second = alone / spanned
    return bool(first - second > ODDS * error)


def _unseats(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether ``one`` scatters significantly less than ``other`` (Fisher's z of the two scatters).

    Not where it leaves more calls unpaired: the part of a window before a clock jump scatters little by itself.
    """
    steps = min(one.independent, other.independent)
    if steps <= 2 or _leaves_more(one, other):
        return False
    return bool(other.spread + CERTAIN_NS > np.exp(ODDS / np.sqrt(steps - 2)) * (one.spread + CERTAIN_NS))


def agrees(one: CallSequence, other: CallSequence) -> bool:
    """Whether two sequences are equal call by call, and neither sequence numbers nor ends contradict it."""
    if len(one) != len(other) or not np.array_equal(one.must, other.must) or not np.array_equal(one.step, other.step):
        return False
    marked = bool((one.step >= 0).all())
    numbered = (one.seq >= 0).all() and (other.seq >= 0).all()
    if numbered:
        return marked and np.array_equal(one.seq, other.seq)
    if not marked or _shift_is_steadier(one, other):
        return False
    # Two ranks may have lost different calls of one step.
    every = np.arange(len(one))
    return _surely_overlap(one, other) or _overlap(one, other, Hypothesis(STEPS, (every, every)))


def _surely_overlap(one: CallSequence, other: CallSequence) -> bool:
    """Whether all pairs in order overlap as they have to by each clock offset that :func:`_overlap` could estimate.

    Offsets are estimated by medians and interpolation of drifts and of what drifts leave of the differences between
    ends: they exceed no difference by more than the drift. This is quicker than to estimate them.
    """
    shown = showing(one, np.arange(len(one)))
    apart = (one.end[shown] - other.end[shown]).astype(np.float64)
    if not len(apart):
        return False
    drift = float(np.ptp(trend(one.end[shown].astype(np.float64), apart)))
    late = other.start + (apart.max() + drift) - one.end > ENDS_NS
    early = one.start - (other.end + (apart.min() - drift)) > ENDS_NS
    return not bool(((late | early) & one.together).any())


def _shift_is_steadier(one: CallSequence, other: CallSequence) -> bool:
    """Whether the ends fit better a few steps apart. Only the last end of each step is used."""
    first = np.flatnonzero(np.diff(one.step, prepend=-1) > 0)
    if len(first) < 3 or (np.diff(one.step) < 0).any():
        return False
    a, b = (np.maximum.reduceat(s.end, first) for s in (one, other))
    own = _scatter(a - b)
    if own <= CERTAIN_NS or abs(float(np.median(a - b))) <= ONE_CLOCK_NS + own:
        return False
    for shift in (k for n in range(1, STEP_SHIFTS + 1) for k in (-n, n)):
        apart = a[max(shift, 0) : len(a) + min(shift, 0)] - b[max(-shift, 0) : len(b) + min(-shift, 0)]
        if len(apart) > 2 and own + CERTAIN_NS > np.exp(ODDS / np.sqrt(len(apart) - 2)) * (
            _scatter(apart) + CERTAIN_NS
        ):
            return True
        if len(apart) > 2 and abs(float(np.median(apart))) <= ONE_CLOCK_NS + _scatter(apart):
            return True
    return False


def _scatter(values: I64) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
