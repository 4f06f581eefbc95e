"""Ways to say which calls of two ranks are the same, and which of them explains most.

Communication ids, sequence numbers and step numbers are evidence, not truth: they restart, count other calls as well,
or hash what differs between ranks. Each is a hypothesis, as is plain order. A hypothesis is worth the calls it pairs
without leaving gaps and how steady the distance of their ends is: ends of one call keep the distance of two clocks,
whatever the clocks; of a wrong pairing they scatter by what the intervals between calls differ.
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
"""Two ranks whose calls end within this of each other, without any correction, read one clock: two clocks that have
nothing to do with each other are that close by chance in one of a thousand steps of 100 ms."""

MAX_SHIFT = 16
"""How many calls or steps two windows may be apart where nothing but order identifies a call."""

LOOKED_AT = 4
"""Shifts that are followed up with the clocks they imply."""

STEP_SHIFTS = 3
"""How many steps apart two equal numberings are tried."""

LEAST_SHARE = 0.5
"""Of the shorter window; less in common is no match."""


@dataclass(slots=True)
class Hypothesis:
    """A pairing, and how well it explains what was recorded."""

    name: str
    pairs: Pairs
    gaps: int = 0
    """Calls that it leaves alone between the first and the last pair, on both sides."""
    spread: float = np.inf
    """Scatter of the distance of ends, a linear drift taken out, ns."""
    apart: float = 0.0
    """Median distance of the ends, ns."""
    independent: int = 0
    """Steps (calls where there are none) that the scatter is known from: within a step a wrong pairing is as steady."""
    settled: bool = False
    """Its pairs were made with the clocks that it implies: they may be believed call by call."""
    trusted: bool = True
    """An identity pairs each call by itself; a shift is right for a part of the window only once a record is lost."""

    @property
    def size(self) -> int:
        """How many calls it pairs."""
        return len(self.pairs[0])


def best_pairing(one: CallSequence, other: CallSequence) -> Hypothesis:
    """The pairing that explains most; of size 0 where none explains anything."""
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
    """Pairs by an identity, those left out that disagree; none where more than one in ten does."""
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
    """Order alone: by whole steps, and by calls counted from the end of the windows."""
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
    """The shifts worth a closer look: the smallest, and those in which a part of the calls fits best."""
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
        # a clock that was set leaves every call in its place: steady within the steps, before and after
        scatter = _clock(one, other, judged)[1]
        judged.spread = scatter if scatter <= ENDS_NS else spread
    return judged


def _both_ways(hypothesis: Hypothesis, one: CallSequence, other: CallSequence) -> list[Hypothesis]:
    """The hypothesis, refined; and where records are missing, what its steps come to with the clock at which most of
    their calls end together. Where both ranks lost some of each step, few pairs in order are right."""
    refined = [_refined(hypothesis, one, other)]
    by_steps = hypothesis.trusted and hypothesis.name in (STEPS, ORDER)
    if by_steps and hypothesis.gaps and (one.step[hypothesis.pairs[0]] >= 0).all():
        ahead = most_end_together(one, other, _renumbered(one, other, hypothesis))
        if ahead is not None:
            refined.append(_refined(hypothesis, one, other, ahead))
    return refined


def _refined(hypothesis: Hypothesis, one: CallSequence, other: CallSequence, known: float | None = None) -> Hypothesis:
    """The same hypothesis with the clocks that it implies: what ran at the same time is paired.

    A pairing that fits is left as it is: one late end is no reason to tear a call apart. ``known``: what to add to the
    times of ``other`` at first, ns; else the pairs say.
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
    """Whether calls that need not run at the same time do in this job, as large messages do: more of them did than not.
    Next to lost records pairs are wrong, but fewer of those are than right ones."""
    a, b = pairs
    loose = ~one.together[a]
    a, b = a[loose], b[loose]
    apart = ((other.start + ahead)[b] - one.end[a] > slack) | (one.start[a] - (other.end + ahead)[b] > slack)
    return bool(len(a)) and float(apart.mean()) < 0.5


def _overlap(one: CallSequence, other: CallSequence, hypothesis: Hypothesis) -> bool:
    """Whether calls that have to run at the same time did. Ends that scatter, of CPU backends, do not say of any."""
    a, b = hypothesis.pairs
    ahead, scatter = _clock(one, other, hypothesis)
    if scatter > ENDS_NS:
        return True
    slack = max(3.0 * scatter, ENDS_NS)
    late = (other.start + ahead)[b] - one.end[a] > slack
    early = one.start[a] - (other.end + ahead)[b] > slack
    return not bool(((late | early) & one.together[a]).any())


def _renumbered(one: CallSequence, other: CallSequence, hypothesis: Hypothesis) -> I64:
    """Steps of ``other`` in the numbers of ``one``, as the pairs say."""
    a, b = hypothesis.pairs
    known = (one.step[a] >= 0) & (other.step[b] >= 0)
    if not known.any():
        return other.step
    values, counts = np.unique(one.step[a[known]] - other.step[b[known]], return_counts=True)
    return np.where(other.step >= 0, other.step + values[np.argmax(counts)], -1)


def _chosen(usable: list[Hypothesis]) -> Hypothesis:
    """The first that no other clearly beats."""
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
    """Whether ``one`` leaves more calls alone, of those that it spans, than chance makes of what ``other`` leaves. What
    lies beyond its first and its last pair says nothing: windows that are apart have less in common by right."""
    spanned = np.array([2 * h.size + h.gaps for h in (one, other)], np.float64)
    alone = np.array([h.gaps for h in (one, other)], np.float64)
    share = float(alone.sum() / spanned.sum())
    error = np.sqrt(share * (1.0 - share) * (1.0 / spanned).sum())
    first, second = alone / spanned
    return bool(first - second > ODDS * error)


def _unseats(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether ``one`` is so much steadier than ``other`` that chance does not make it (Fisher's z of the scatters).

    Not where it leaves more calls alone: the part of a window that lies before a step of a clock is steady by itself.
    """
    steps = min(one.independent, other.independent)
    if steps <= 2 or _leaves_more(one, other):
        return False
    return bool(other.spread + CERTAIN_NS > np.exp(ODDS / np.sqrt(steps - 2)) * (one.spread + CERTAIN_NS))


def agrees(one: CallSequence, other: CallSequence) -> bool:
    """Whether two sequences are the same call by call, and neither numbers nor ends say otherwise."""
    if len(one) != len(other) or not np.array_equal(one.must, other.must) or not np.array_equal(one.step, other.step):
        return False
    marked = bool((one.step >= 0).all())
    numbered = (one.seq >= 0).all() and (other.seq >= 0).all()
    if numbered:
        return marked and np.array_equal(one.seq, other.seq)
    if not marked or _shift_is_steadier(one, other):
        return False
    # two ranks may have lost different calls of one step
    every = np.arange(len(one))
    return _overlap(one, other, Hypothesis(STEPS, (every, every)))


def _shift_is_steadier(one: CallSequence, other: CallSequence) -> bool:
    """Whether the ends fit better some steps apart; the last end of each step is looked at."""
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
