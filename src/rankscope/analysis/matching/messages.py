"""The messages from one rank to another, as both recorded them: the n-th that was sent is the n-th that was received.

Neither side shows the clocks by its ends: round a ring each ends after its own neighbours. But a large message is not
received before it is sent, nor is its send over before the receive has begun, so that each pair bounds the distance of
the two clocks from both sides, and a pairing is right where one distance suits most messages. Small ones may be over
before they are awaited: in a step of which both sides have as many, order decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.sequences import CallSequence, Pairs, by_time

__all__ = ["pair_messages", "pair_on_one_clock"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

STEP_SHIFTS = 3
"""How many steps apart two numberings are tried."""

SLACK_NS = 25_000.0
"""Times of one kernel on two ranks of one host agree within this (measured)."""

MOSTLY = 0.5
"""Share of the steps in common, of their messages that one distance of the clocks has to suit (next to lost records
they do not), and of what the best shift explains that suffices to believe the step numbers."""

CLEARLY = 2
"""By how many pairs times must explain more of a step than order does: one message that was over before it was awaited
lets its neighbour fit another."""


@dataclass(slots=True)
class _Shift:
    """Step numbers of the receiver that are ``later`` than those of the sender, and what follows."""

    later: int
    ahead: tuple[float, float, float]
    """What to add to the receiver's times, ns: the middle of what suits, the least and the most."""
    explained: int
    """Pairs of messages that suit it."""
    at_once: bool
    """The clocks may be one."""


def pair_on_one_clock(sent: CallSequence, received: CallSequence, ahead: F64) -> Pairs | None:
    """Pair the messages of two ranks whose clocks are known from other calls.

    Both kernels of a message run while it is on its way, and no message takes less than the shortest kernel of its
    size: of neighbours that overlap, few do so for as long.

    Args:
        sent: by one rank.
        received: by another.
        ahead: what to add to the receiver's times, ns, for each of its calls.

    Returns:
        Places in ``sent`` and in ``received``; None where the messages of this job do not overlap.
    """
    first = max(int(sent.start[0]), int((received.start + ahead)[0]))
    last = min(int(sent.end[-1]), int((received.end + ahead)[-1]))
    common = min(int(((s.end + a >= first) & (s.start + a <= last)).sum()) for s, a in ((sent, 0.0), (received, ahead)))
    least = _shortest(sent, received)
    every = np.ones(len(sent), np.bool_)
    pairs = by_time(sent, received, ahead, (0.0, SLACK_NS), every, least=least)
    return pairs if common and len(pairs[0]) > MOSTLY * common else None


def _shortest(sent: CallSequence, received: CallSequence) -> F64:
    """For each message sent the shortest kernel of its size on both ranks, ns."""
    _, size = np.unique(np.concatenate((sent.must, received.must)), return_inverse=True)
    size = size.reshape(-1)
    least = np.full(int(size.max()) + 1, np.inf)
    np.minimum.at(least, size, np.concatenate((sent.end - sent.start, received.end - received.start)))
    return np.asarray(least[size[: len(sent)]])


def pair_messages(sent: CallSequence, received: CallSequence) -> Pairs | None:
    """Pair the messages by step and order, and by time in the steps in which a record is missing.

    Returns:
        Places in ``sent`` and in ``received``; None where steps or times do not tell, or messages do not overlap.
    """
    mine, theirs = _by_step(sent), _by_step(received)
    if not mine or not theirs:
        return None
    numbers = (min(theirs) - min(mine), max(theirs) - max(mine))
    tried = sorted({*range(-STEP_SHIFTS, STEP_SHIFTS + 1), *numbers}, key=abs)
    found = [s for later in tried if (s := _shifted(sent, received, mine, theirs, later)) is not None]
    if not found:
        return None
    most = max(shift.explained for shift in found)
    standing = [shift for shift in found if shift.explained >= MOSTLY * most]
    best = next((shift for shift in standing if shift.at_once), standing[0])
    together = [(step, step + best.later) for step in mine if step + best.later in theirs]
    parts = [(mine[step], theirs[other]) for step, other in together]
    # within what it is known to, the distance that explains most
    tried = [[_by_time(sent.chosen(a), received.chosen(b), ahead) for a, b in parts] for ahead in best.ahead]
    number = max(range(len(tried)), key=lambda n: sum(len(pairs[0]) for pairs in tried[n]))
    chosen = [
        _of_step(sent.chosen(a), received.chosen(b), best.ahead[number], pairs)
        for (a, b), pairs in zip(parts, tried[number], strict=True)
    ]
    one = [a[pairs[0]] for (a, _), pairs in zip(parts, chosen, strict=True)]
    other = [b[pairs[1]] for (_, b), pairs in zip(parts, chosen, strict=True)]
    return np.concatenate(one), np.concatenate(other)


def _by_time(one: CallSequence, other: CallSequence, ahead: float) -> Pairs:
    return by_time(one, other, np.full(len(other), ahead), (0.0, SLACK_NS), np.ones(len(one), np.bool_))


def _of_step(one: CallSequence, other: CallSequence, ahead: float, by_times: Pairs) -> Pairs:
    """In order where both sides have as many and the times do not clearly say that each side lost some."""
    if len(one) != len(other):
        return by_times
    suits = (one.start - SLACK_NS <= other.end + ahead) & (other.start + ahead <= one.end + SLACK_NS)
    every = np.arange(len(one))
    return by_times if len(by_times[0]) >= suits.sum() + CLEARLY else (every, every)


def _by_step(messages: CallSequence) -> dict[int, I64]:
    """Step -> its messages, in order; those outside of steps are left out."""
    order = np.argsort(messages.step, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(messages.step[order])) + 1)
    return {int(messages.step[part[0]]): part for part in parts if len(part) and messages.step[part[0]] >= 0}


def _shifted(
    sent: CallSequence, received: CallSequence, mine: dict[int, I64], theirs: dict[int, I64], later: int
) -> _Shift | None:
    """The distance of the clocks that suits most steps, None where it does not suit enough of them."""
    common = [step for step in mine if step + later in theirs]
    if len(common) < MOSTLY * min(len(mine), len(theirs)):
        return None
    pairs = [_in_order(mine[step], theirs[step + later]) for step in common]
    a, b = (np.concatenate(side) for side in zip(*pairs, strict=True))
    least = (sent.start[a] - received.end[b]).astype(np.float64) - SLACK_NS
    most = (sent.end[a] - received.start[b]).astype(np.float64) + SLACK_NS
    possible = (least <= most) & (sent.must[a] == received.must[b])
    if not possible.any():
        return None

    def suiting(ahead: float) -> NDArray[np.bool_]:
        return np.asarray(possible & (least <= ahead) & (ahead <= most))

    begins, ends = np.sort(least[possible]), np.sort(most[possible])
    count = np.searchsorted(begins, begins, side="right") - np.searchsorted(ends, begins)
    here = suiting(float(begins[int(np.argmax(count))]))
    low, high = float(least[here].max()), float(most[here].min())
    recorded = sum(min(len(mine[step]), len(theirs[step + later])) for step in common)
    if here.sum() < MOSTLY * recorded:
        return None
    at_once = bool(suiting(0.0).sum() >= here.sum())
    return _Shift(later, ((low + high) / 2.0, low, high), int(here.sum()), at_once)


def _in_order(one: I64, other: I64) -> Pairs:
    """Pairs in order; where one side has more, from the front and from the back, of which each is right in part."""
    size = min(len(one), len(other))
    if len(one) == len(other):
        return one, other
    return np.concatenate((one[:size], one[-size:])), np.concatenate((other[:size], other[-size:]))
