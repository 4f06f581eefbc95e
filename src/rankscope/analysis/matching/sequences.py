"""The calls of one rank in one communicator, and ways to pair them with another rank's.

Two sequences of the same calls seldom have the same length, because records get lost, windows open and close at
different times, and numbering restarts. The functions here pair calls in order, leave a gap where one side has no
counterpart, and never make pairs that cross.
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
"""Indices into one sequence and into another, both ascending and of shape (pairs,)."""

NOTHING: Pairs = (np.empty(0, np.int64), np.empty(0, np.int64))

MOST_COALESCED = 8
"""Largest number of calls of one rank that may share a key. A key shared by more is taken to identify nothing."""

NEIGHBOURS = 4
"""Number of neighbours in time, on each side, that are tried for calls that need not overlap: a message may be sent
before the receiver waits for it."""

LARGEST_TABLE = 4_000_000
"""Largest number of cells of the alignment table of two sequences. Larger sequences are paired by shifts only."""


@dataclass(slots=True)
class CallSequence:
    """Calls of one rank in one communicator, in order of start; arrays of shape (calls,)."""

    rows: I64
    """Rows in the rank's ``Collectives``."""
    start: I64
    """Start in ns of the rank's own clock; ``end`` likewise."""
    end: I64
    must: I64
    """Hash of what has to agree on all ranks: kind and type, and the size where all ranks need the same."""
    may: I64
    """Hash of the sizes. They may differ by rank where ``must`` holds no size."""
    together: Mask
    """Whether no rank can leave the call before every rank has arrived, so that its parts overlap in time."""
    symmetric: Mask
    """Whether the call also ends on all ranks at the same time, so that it shows the clock offset."""
    step: I64
    """Number of the step, -1 outside of marked steps."""
    seq: I64
    """Sequence number, -1 where the trace has none."""
    comms_id: I64
    """Communication id as an integer, -1 where the trace has none."""

    def __len__(self) -> int:
        return len(self.rows)

    def chosen(self, places: I64) -> CallSequence:
        """Return the calls at these indices."""
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
    """Pair calls whose keys are equal. Calls that share a key (coalesced calls) are paired by order.

    Args:
        one: columns of the keys of one sequence.
        other: the same columns of the other sequence.

    Returns:
        The pairs; none where a key is too common to identify a call. Pairs that cross others are left out.
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
    """Make codes unique by the number of earlier occurrences; None where a code occurs too often to identify
    anything."""
    order = np.argsort(code, kind="stable")
    place = np.arange(len(code))
    fresh = np.diff(code[order], prepend=-1) != 0
    nth = np.empty(len(code), np.int64)
    nth[order] = place - np.maximum.accumulate(np.where(fresh, place, 0))
    if nth.max(initial=0) >= MOST_COALESCED:
        return None
    return np.asarray(code * MOST_COALESCED + nth)


def by_signature(one: CallSequence, other: CallSequence) -> Pairs:
    """Return the longest common subsequence of ``must``; among equally long ones, the one with more equal sizes."""
    if len(one) == len(other) and np.array_equal(one.must, other.must):
        every = np.arange(len(one))
        return every, every
    # The common prefix and suffix need no table.
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
    """Pair calls within steps of equal number; calls outside of steps stay unpaired.

    Args:
        one: a sequence.
        other: the sequence of another rank.
        step: step numbers of ``other``, in the numbering of ``one``.
    """
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
    """Pair calls that ran at the same time, given the clock offset.

    Args:
        one: a sequence.
        other: the sequence of another rank.
        ahead: what to add to the times of ``other`` to convert them to the clock of ``one``, in ns, one value a call.
        known_to: uncertainty of ``ahead`` in ns: typical, and at worst. Calls that overlap by less than three times the
            typical one are the same only if their ends agree.
        overlapping: which calls of ``one`` have to overlap their counterparts in time; the others need not.
        step: step numbers of ``other``, in the numbering of ``one``; pairs within one step are preferred.
        least: least time for which each call of ``one`` has to overlap its counterpart, in ns; None: any time.
    """
    if not len(one) or not len(other):
        return NOTHING
    scatter, slack = known_to
    start, end = other.start + ahead, other.end + ahead
    # Both are in order of start. The running maximum makes the ends a sorted axis, too.
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
    """Indices of the chain of pairs with the largest total weight in which both ``a`` and ``b`` strictly increase."""
    if not len(a):
        return np.empty(0, np.int64)
    order = np.lexsort((-b, a))
    size = int(b.max()) + 2
    tree, holder = [0.0] * size, [-1] * size
    before, total = [-1] * len(a), [0.0] * len(a)
    columns, weights = b[order].tolist(), weight[order].tolist()
    best, last = 0.0, -1
    for number, (column, own) in enumerate(zip(columns, weights, strict=True)):
        at, value, source = column, 0.0, -1  # the best chain that ends in a smaller `b`
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
