"""Fit clock offsets and drifts of the ranks to the ends of calls, by medians, so that a few wrong ends do not
matter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.collectives import Matched
from rankscope.statistics.grouping import grouped
from rankscope.statistics.medians import median_along

__all__ = ["CLOSE_NS", "Ends", "first_guess", "settle", "slopes"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

MIN_FOR_DRIFT = 12
"""Number of calls that a rank needs before its drift is fitted."""

CLOSE_NS = 1.0
"""Change of an offset from which on it is final."""

ROUNDS = 40
AT_ONCE = 64
"""Number of columns that are worked on at a time, so that their entries stay in the cache."""


@dataclass(slots=True)
class Ends:
    """Ends of calls in ns, one table (calls, members) for each number of members.

    Functions that return "all entries" concatenate the entries of all tables, in order.
    """

    ranks: int
    columns: list[I64]
    """Column (rank) of each end, in tables of the same shapes."""
    tables: list[F64]
    order: I64
    """Indices of all entries, sorted by column and then in order of the tables."""
    bounds: I64
    """Begin of each column's entries in ``order``."""
    weight: F64 | None = None
    """Number of calls that the call of each entry stands for, for all entries; None where no call was left out."""
    alike: list[tuple[I64, I64]] = field(init=False)
    """Columns with equally many entries, and these entries, shape (columns, entries)."""

    def __post_init__(self) -> None:
        count = np.diff(self.bounds)
        equal = [np.flatnonzero(count == size) for size in np.unique(count[count > 0]).tolist()]
        self.alike = [(c, self.order[self.bounds[c][:, None] + np.arange(count[c[0]])]) for c in equal]

    @classmethod
    def of(cls, times: F64, matched: Matched, usable: NDArray[np.bool_]) -> Ends:
        """Build the tables from the ends of all members, in ns, and the mask of usable calls."""
        members = matched.by_size(usable)
        columns = [matched.column[m].astype(np.int64) for m in members]
        return cls.joined(len(matched.ranks), columns, [times[m] for m in members])

    @classmethod
    def joined(cls, ranks: int, columns: list[I64], tables: list[F64], weight: F64 | None = None) -> Ends:
        """Build the order of all entries for some tables."""
        owner = np.concatenate([c.ravel() for c in columns])
        return cls(ranks, columns, tables, *grouped(owner, ranks), weight)

    def mean(self, flat: F64) -> float:
        """Mean over all entries, and those left out."""
        return float(np.average(flat, weights=self.weight))

    def thinned(self, most: int) -> Ends:
        """Keep of each set of members at most this many calls, at equal distances; calls are in order of time."""
        columns, tables, weights = [], [], []
        for members, table in zip(self.columns, self.tables, strict=True):
            sets = _calls_of_sets(members)
            left = [calls[np.arange(n) * len(calls) // n] for calls in sets for n in [min(len(calls), most)]]
            kept = np.concatenate(left)
            columns.append(members[kept])
            tables.append(table[kept])
            stands_for = [len(calls) / len(own) for calls, own in zip(sets, left, strict=True)]
            weights.append(np.repeat(stands_for, [own.size * table.shape[1] for own in left]))
        return Ends.joined(self.ranks, columns, tables, np.concatenate(weights))

    def residuals(self, slope: F64, offset: F64) -> F64:
        """Difference of each end from the median end of its call, in ns, for all entries."""
        parts = []
        for members, table in zip(self.columns, self.tables, strict=True):
            straight = table * (1.0 + slope.take(members)) if slope.any() else table
            aligned = straight + offset.take(members)
            parts.append((aligned - median_along(aligned, axis=1)).ravel())
        return np.concatenate(parts)

    def by_column(self, flat: F64) -> list[F64]:
        """Split values of all entries by column."""
        return np.split(flat[self.order], self.bounds[1:-1])

    def medians(self, flat: F64) -> F64:
        """Median of each column's entries, 0 where it has none."""
        out = np.zeros(self.ranks)
        for columns, entries in self.some_alike():
            out[columns] = _middle(flat.take(entries))
        return out

    def some_alike(self) -> Iterator[tuple[I64, I64]]:
        """Yield some columns with equally many entries at a time, and these entries, as in ``alike``."""
        for columns, entries in self.alike:
            for begin in range(0, len(columns), AT_ONCE):
                yield columns[begin : begin + AT_ONCE], entries[begin : begin + AT_ONCE]

    def flat(self) -> F64:
        """Ends of all entries, in ns."""
        return np.concatenate([t.ravel() for t in self.tables])

    def sizes(self) -> F64:
        """Number of members of each entry's call, for all entries."""
        return np.concatenate([np.full(t.size, float(t.shape[1])) for t in self.tables])

    def by_members(self) -> list[tuple[I64, F64]]:
        """Group calls by their set of members. Return the members' columns, and ends of shape (calls, members), of each
        set."""
        return [
            (columns[mine[0]], table[mine])
            for columns, table in zip(self.columns, self.tables, strict=True)
            for mine in _calls_of_sets(columns)
        ]


def _middle(rows: F64) -> F64:
    """Median of each row, which is sorted in place only around it."""
    size = rows.shape[1]
    places = sorted({(size - 1) // 2, size // 2})
    rows.partition(places, axis=1)
    # as numpy.median does, so that the numbers are the same
    return np.asarray(rows[:, places].mean(axis=1))


def _calls_of_sets(rows: I64) -> list[I64]:
    """Return the indices of the rows of each distinct set of members, ascending."""
    # In this byte order, the order of the bytes is that of the numbers, and bytes are compared at once.
    key = np.ascontiguousarray(rows, ">i8").view(np.dtype((np.void, 8 * rows.shape[1]))).ravel()
    _, which = np.unique(key, return_inverse=True)
    order, first = grouped(which.reshape(-1), int(which.max()) + 1)
    return np.split(order, first[1:-1])


def first_guess(table: Ends, start: F64) -> tuple[F64, NDArray[np.bool_], int]:
    """Estimate offsets breadth first over ranks that share calls, by the median difference of their ends.

    Args:
        table: ends of the usable calls.
        start: offset of each rank to begin with, in ns.

    Returns:
        Offsets in ns, a mask of the ranks in the largest set that is connected by calls, and the number of such sets.
    """
    count = table.ranks
    blocks: list[list[int]] = [[] for _ in range(count)]
    sets = table.by_members()
    for number, (members, _) in enumerate(sets):
        for column in members.tolist():
            blocks[column].append(number)
    offset, seen = start.copy(), np.zeros(count, np.bool_)
    best, parts = np.zeros(count, np.bool_), 0
    used = np.zeros(len(sets), np.bool_)  # all members of such a set have an offset
    for root in range(count):
        if seen[root] or not blocks[root]:
            continue
        part = np.zeros(count, np.bool_)
        part[root] = True
        queue = [root]
        while queue:
            here = queue.pop(0)
            apart: dict[int, list[F64]] = {}
            for number in blocks[here]:
                if used[number]:
                    continue
                used[number] = True
                members, ends = sets[number]
                own = ends[:, int(np.flatnonzero(members == here)[0])]
                for place, other in enumerate(members.tolist()):
                    if not part[other]:
                        apart.setdefault(other, []).append(own - ends[:, place])
            for other, distances in apart.items():
                offset[other] = offset[here] + float(np.median(np.concatenate(distances)))
                part[other] = True
                queue.append(other)
        seen |= part
        parts += 1
        if part.sum() > best.sum():
            best = part
    return offset, best, parts


def settle(table: Ends, slope: F64, offset: F64, close_ns: float = CLOSE_NS) -> F64:
    """Refine offsets (ns) by alternating between the median end of each call and the median residual of each rank,
    until no offset changes by more than ``close_ns``."""
    offset = offset.copy()
    for _ in range(ROUNDS):
        step = table.medians(table.residuals(slope, offset))
        offset -= step
        if np.abs(step).max(initial=0.0) < close_ns:
            break
    return offset


def slopes(table: Ends, residual: F64) -> F64:
    """Robust slope of each rank's residual over time, with reversed sign: median of slopes between the halves of the
    window."""
    found, times = np.zeros(table.ranks), table.flat()
    for columns, entries in table.some_alike():
        half = entries.shape[1] // 2
        if entries.shape[1] < MIN_FOR_DRIFT:
            continue
        ordered = np.take_along_axis(entries, np.argsort(times.take(entries), axis=1), axis=1)
        x, y = times.take(ordered), residual.take(ordered)
        spread = x[:, -half:] - x[:, :half]
        rising = (spread > 0).all(axis=1)
        found[columns[rising]] = -_middle((y[rising, -half:] - y[rising, :half]) / spread[rising])
    return found
