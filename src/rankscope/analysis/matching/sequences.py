"""The calls of one rank in one communicator, and which of them are the same as another rank's.

Records get lost, windows open and close apart, numbers restart: two sequences of the same calls seldom have the same
length. The functions here pair calls in order, leave gaps where a side has no counterpart, and never cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOTHING", "CallSequence", "Pairs", "by_key", "by_signature", "by_step", "by_time", "heaviest_chain"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]
Pairs = tuple[I64, I64]
"""Places in one sequence and in another, both ascending."""

NOTHING: Pairs = (np.empty(0, np.int64), np.empty(0, np.int64))

MOST_COALESCED = 8
"""Calls of one rank that may share a key; more, and the key identifies nothing."""

NEIGHBOURS = 4
"""How many neighbours in time are tried for calls that need not overlap: a message may be sent before it is awaited."""

LARGEST_TABLE = 4_000_000
"""Cells of a table of two sequences; larger ones are paired by their shifts only."""


@dataclass(slots=True)
class CallSequence:
    """Calls of one rank in one communicator in order of start; columns of one length."""

    rows: I64
    """Rows in the rank's ``Collectives``."""
    start: I64
    """Nanoseconds of the rank's own clock, as ``end``."""
    end: I64
    must: I64
    """What has to agree on all ranks, as a number: kind and type, and the sizes of kinds that need equal ones."""
    may: I64
    """Sizes, as a number. They differ by rank by right where ``must`` holds no size."""
    together: Mask
    """Calls that no rank can leave before every rank has arrived: they overlap in time."""
    symmetric: Mask
    """Calls that also end on all ranks at the same time, so that they show the clocks."""
    step: I64
    """Number of the step, -1 outside of the marked ones."""
    seq: I64
    """-1 where the trace has none."""
    comms_id: I64
    """As a number, -1 where the trace has none."""

    def __len__(self) -> int:
        return len(self.rows)

    def chosen(self, places: I64) -> CallSequence:
        """Only the calls at these places."""
        return CallSequence(
            self.rows[places],
            self.start[places],
            self.end[places],
            self.must[places],
            self.may[places],
            self.together[places],
            self.symmetric[places],
            self.step[places],
            self.seq[places],
            self.comms_id[places],
        )


def by_key(one: Sequence[I64], other: Sequence[I64]) -> Pairs:
    """Pair calls whose keys are equal; a key is a number from each column. Coalesced calls share a key: by order.

    Empty where the keys identify nothing, or where they would make pairs cross.
    """
    size = len(one[0])
    columns = [np.concatenate((a, b)) for a, b in zip(one, other, strict=True)]
    _, code = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    code = code.reshape(-1)
    first, second = _numbered(code[:size]), _numbered(code[size:])
    if first is None or second is None:
        return NOTHING
    _, a, b = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    order = np.argsort(a)
    a, b = a[order].astype(np.int64), b[order].astype(np.int64)
    if (np.diff(b) <= 0).any():
        kept = heaviest_chain(a, b, np.ones(len(a)))
        a, b = a[kept], b[kept]
    return a, b


def _numbered(code: I64) -> I64 | None:
    """Codes made unique by how often each came before; None where one comes too often to identify anything."""
    order = np.argsort(code, kind="stable")
    place = np.arange(len(code))
    fresh = np.diff(code[order], prepend=-1) != 0
    nth = np.empty(len(code), np.int64)
    nth[order] = place - np.maximum.accumulate(np.where(fresh, place, 0))
    if nth.max(initial=0) >= MOST_COALESCED:
        return None
    return np.asarray(code * MOST_COALESCED + nth)


def by_signature(one: CallSequence, other: CallSequence) -> Pairs:
    """The longest common subsequence of what must agree; of equals the one whose sizes agree, then the latest."""
    if len(one) == len(other) and np.array_equal(one.must, other.must):
        every = np.arange(len(one))
        return every, every
    # what is the same at both ends needs no table
    shorter = min(len(one), len(other))
    differs = np.flatnonzero(one.must[:shorter] != other.must[:shorter])
    head = int(differs[0]) if len(differs) else shorter
    differs = np.flatnonzero(one.must[::-1][: shorter - head] != other.must[::-1][: shorter - head])
    tail = int(differs[0]) if len(differs) else shorter - head
    rows, columns = len(one) - head - tail, len(other) - head - tail
    middle = NOTHING
    if rows and columns and rows * columns <= LARGEST_TABLE:
        middle = _common(one.chosen(np.arange(head, head + rows)), other.chosen(np.arange(head, head + columns)))
    fronts, backs = np.arange(head), np.arange(tail)
    return (
        np.concatenate((fronts, head + middle[0], backs + len(one) - tail)),
        np.concatenate((fronts, head + middle[1], backs + len(other) - tail)),
    )


def _common(one: CallSequence, other: CallSequence) -> Pairs:
    rows, columns = len(one), len(other)
    best = np.zeros((rows + 1, columns + 1))
    for row in range(rows):
        weight = np.where(one.must[row] == other.must, 1.0 + 0.1 * (one.may[row] == other.may), 0.0)
        taken = np.where(weight > 0, best[row, :-1] + weight, 0.0)
        best[row + 1, 1:] = np.maximum.accumulate(np.maximum(best[row, 1:], taken))
    a, b = [], []
    row, column = rows, columns
    while row and column:
        here = best[row, column]
        if here == best[row - 1, column]:
            row -= 1
        elif here == best[row, column - 1]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            a.append(row)
            b.append(column)
    return np.array(a[::-1], np.int64), np.array(b[::-1], np.int64)


def by_step(one: CallSequence, other: CallSequence, step: I64) -> Pairs:
    """Pair within steps of the same number; ``step`` are the other's, renumbered. Calls outside of steps stay alone."""
    a, b = [NOTHING[0]], [NOTHING[0]]
    mine, theirs = _blocks(one.step), _blocks(step)
    for number, first in mine.items():
        second = theirs.get(number)
        if number < 0 or second is None:
            continue
        found = by_signature(one.chosen(first), other.chosen(second))
        a.append(first[found[0]])
        b.append(second[found[1]])
    left, right = np.concatenate(a), np.concatenate(b)
    order = np.argsort(left, kind="stable")
    left, right = left[order], right[order]
    if (np.diff(right) <= 0).any():
        kept = heaviest_chain(left, right, np.ones(len(left)))
        left, right = left[kept], right[kept]
    return left, right


def _blocks(step: I64) -> dict[int, I64]:
    order = np.argsort(step, kind="stable")
    cuts = np.flatnonzero(np.diff(step[order])) + 1
    return {int(step[part[0]]): np.sort(part) for part in np.split(order, cuts) if len(part)}


def by_time(
    one: CallSequence,
    other: CallSequence,
    ahead: F64,
    known_to: tuple[float, float],
    overlapping: Mask,
    step: I64 | None = None,
    least: F64 | None = None,
) -> Pairs:
    """Pair calls that ran at the same time once clocks are known.

    Args:
        one: a sequence.
        other: another rank's.
        ahead: what to add to the times of ``other`` to have them on the clock of ``one``, ns, for each of its calls.
        known_to: how well ``ahead`` is known, ns: typically, and at worst. Calls that only touch are the same where
            their ends agree.
        overlapping: which calls of ``one`` have to run at the same time as their counterparts; others need not.
        step: steps of ``other`` in the numbers of ``one``; calls of one step are preferred.
        least: how long each call of ``one`` has to run at the same time as its counterpart, ns; else for any time.
    """
    if not len(one) or not len(other):
        return NOTHING
    scatter, slack = known_to
    start, end = other.start + ahead, other.end + ahead
    # both are in order of start; a running maximum makes the ends a sorted axis as well
    ends = np.maximum.accumulate(end)
    low = np.searchsorted(ends, one.start - slack, side="left")
    high = np.searchsorted(start, one.end + slack, side="right")
    nearest = np.searchsorted(ends, one.end)
    loose = ~overlapping
    low[loose] = np.minimum(low, nearest - NEIGHBOURS)[loose].clip(0)
    high[loose] = np.maximum(high, nearest + NEIGHBOURS)[loose].clip(max=len(other))
    count = np.maximum(high - low, 0)
    a = np.repeat(np.arange(len(one)), count)
    b = np.arange(len(a)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    apart = np.abs(end[b] - one.end[a])
    common = np.minimum(one.end[a], end[b]) - np.maximum(one.start[a], start[b])
    at_once = (common > 3.0 * scatter) | (apart <= slack) if least is None else common >= least[a] - slack
    fits = (one.must[a] == other.must[b]) & (~overlapping[a] | at_once)
    a, b, apart = a[fits], b[fits], apart[fits]
    weight = 1.0 + 1.0 / (1.0 + apart / max(slack, 1.0)) + 0.1 * (one.may[a] == other.may[b])
    if step is not None:
        weight += (one.step[a] == step[b]) & (one.step[a] >= 0)
    kept = heaviest_chain(a, b, weight)
    return a[kept], b[kept]


def heaviest_chain(a: I64, b: I64, weight: F64) -> I64:
    """Indices of the pairs (a, b) of largest total weight of which neither side repeats or turns back."""
    if not len(a):
        return np.empty(0, np.int64)
    order = np.lexsort((-b, a))
    size = int(b.max()) + 2
    tree, holder = [0.0] * size, [-1] * size
    before, total = [-1] * len(a), [0.0] * len(a)
    columns, weights = b[order].tolist(), weight[order].tolist()
    best, last = 0.0, -1
    for number, (column, own) in enumerate(zip(columns, weights, strict=True)):
        at, value, source = column, 0.0, -1  # the best chain that ends in a column before this one
        while at > 0:
            if tree[at] > value:
                value, source = tree[at], holder[at]
            at -= at & -at
        value += own
        total[number], before[number] = value, source
        if value > best:
            best, last = value, number
        at = column + 1
        while at < size:
            if value > tree[at]:
                tree[at], holder[at] = value, number
            at += at & -at
    chain = []
    while last >= 0:
        chain.append(last)
        last = before[last]
    return np.asarray(order[np.array(chain[::-1], np.int64)], np.int64)
