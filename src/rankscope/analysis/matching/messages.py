"""Pair the point-to-point messages from one rank to another, as sender and receiver recorded them.

Without lost records the n-th message sent is the n-th received. Where records are missing, the times decide. Ends of
kernels do not show the clock offset, because in a ring each kernel ends after its own neighbours. But a large message
is not received before its send begins, and its send does not end before the receive begins. Each pair therefore bounds
the offset of the two clocks from both sides, and a pairing is right if one offset satisfies the bounds of most
messages. Small messages may be over before the receiver waits for them: in a step with equally many sends and receives,
order decides.
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
"""Largest difference of step numbers between the two ranks that is tried, in both directions."""

SLACK_NS = 25_000.0
"""Start and end times of one kernel on two ranks of one host agree within this, in ns (measured)."""

MOSTLY = 0.5
"""Least share of the messages in the common steps that one clock offset has to satisfy (messages next to lost records
do not satisfy it). Also the least share of the best shift's count at which another shift of step numbers is
considered."""

CLEARLY = 2
"""How many more pairs of a step must be explained by times than by order before times are preferred. A margin of one is
not enough: if one message was over before its receive began, its neighbour can fit the wrong receive."""


@dataclass(slots=True)
class _Shift:
    """The assumption that the receiver's step numbers exceed the sender's by ``later``, and how well it fits."""

    later: int
    ahead: tuple[float, float, float]
    """Clock offset to add to the receiver's times, in ns: middle, least and greatest value that fit."""
    explained: int
    """Number of message pairs whose bounds the offset satisfies."""
    at_once: bool
    """Whether an offset of 0 fits as well, so that both ranks may read one clock."""


def pair_on_one_clock(sent: CallSequence, received: CallSequence, ahead: F64) -> Pairs | None:
    """Pair the messages of two ranks whose clock offset is known from other calls.

    Send and receive kernels of a message overlap for as long as the message is on its way, and no message takes less
    time than the shortest kernel of its size. Kernels of neighbouring messages seldom overlap for as long, but next to
    a slow link they do, and longer: order decides in steps in which it agrees with that.

    Args:
        sent: messages as the sender recorded them.
        received: messages as the receiver recorded them.
        ahead: clock offset to add to the receiver's times, in ns, one value for each of its calls.

    Returns:
        Indices into ``sent`` and ``received``; None where the messages of this job do not overlap.
    """
    first = max(int(sent.start[0]), int((received.start + ahead)[0]))
    last = min(int(sent.end[-1]), int((received.end + ahead)[-1]))
    common = min(int(((s.end + a >= first) & (s.start + a <= last)).sum()) for s, a in ((sent, 0.0), (received, ahead)))
    least = _shortest(sent, received)
    one, other = _in_order_of_steps(sent, received, ahead, least)
    rest, remaining = (np.setdiff1d(np.arange(len(all_)), some) for all_, some in ((sent, one), (received, other)))
    by_times = by_time(
        sent.chosen(rest),
        received.chosen(remaining),
        ahead[remaining],
        (0.0, SLACK_NS),
        np.ones(len(rest), np.bool_),
        least=least[rest],
    )
    pairs = np.concatenate((one, rest[by_times[0]])), np.concatenate((other, remaining[by_times[1]]))
    return pairs if common and len(pairs[0]) > MOSTLY * common else None


def _in_order_of_steps(sent: CallSequence, received: CallSequence, ahead: F64, least: F64) -> Pairs:
    """Pair by order the messages of steps in which both ranks have equally many, of equal sizes, that overlap long
    enough."""
    theirs = _by_step(received)
    pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for step, a in _by_step(sent).items():
        b = theirs.get(step)
        if b is None or len(a) != len(b) or (sent.must[a] != received.must[b]).any():
            continue
        both = np.minimum(sent.end[a], received.end[b] + ahead[b]) - np.maximum(
            sent.start[a], received.start[b] + ahead[b]
        )
        if (both >= least[a] - SLACK_NS).all():
            pairs.append((a, b))
    one, other = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return one, other


def _shortest(sent: CallSequence, received: CallSequence) -> F64:
    """For each sent message the duration of the shortest kernel of its size on both ranks, in ns."""
    _, size = np.unique(np.concatenate((sent.must, received.must)), return_inverse=True)
    size = size.reshape(-1)
    least = np.full(int(size.max()) + 1, np.inf)
    np.minimum.at(least, size, np.concatenate((sent.end - sent.start, received.end - received.start)))
    return np.asarray(least[size[: len(sent)]])


def pair_messages(sent: CallSequence, received: CallSequence) -> Pairs | None:
    """Pair the messages by step and order, and by time in steps in which a record is missing.

    Returns:
        Indices into ``sent`` and ``received``; None where neither steps nor times identify the messages, or where the
        messages do not overlap.
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
    # The offset is known to an interval only: take the value in it that explains most messages.
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
    """Pair by order if both sides have equally many messages, unless times explain clearly more pairs."""
    if len(one) != len(other):
        return by_times
    suits = (one.start - SLACK_NS <= other.end + ahead) & (other.start + ahead <= one.end + SLACK_NS)
    every = np.arange(len(one))
    return by_times if len(by_times[0]) >= suits.sum() + CLEARLY else (every, every)


def _by_step(messages: CallSequence) -> dict[int, I64]:
    """Map each step to the indices of its messages, in order of start. Messages outside of steps are left out."""
    order = np.argsort(messages.step, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(messages.step[order])) + 1)
    return {int(messages.step[part[0]]): part for part in parts if len(part) and messages.step[part[0]] >= 0}


def _shifted(
    sent: CallSequence, received: CallSequence, mine: dict[int, I64], theirs: dict[int, I64], later: int
) -> _Shift | None:
    """Find the clock offset that satisfies most messages; None where it does not satisfy enough of them."""
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
    """Pair in order. Where one side has more messages, pair from the front and from the back: each is right in part."""
    size = min(len(one), len(other))
    if len(one) == len(other):
        return one, other
    return np.concatenate((one[:size], one[-size:])), np.concatenate((other[:size], other[-size:]))
