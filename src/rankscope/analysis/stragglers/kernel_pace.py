"""By how much a rank's kernels take longer than the same kernels of other ranks.

Pairs of the same work (:mod:`kernel_table`) occur thousands of times in a window, and on ranks of any role, since
pipeline stages run the same layers. A difference in count or shape is other work, not slower work, and gives no pair. A
rank that shares no kernel with any other is compared with its own other steps, so that it can be slow in some of them.
A kernel counts only where it did not overlap communication of its own rank. Otherwise ranks that wait would look slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.stragglers.kernel_table import KernelTable
from rankscope.statistics.medians import median_of_known

__all__ = ["KernelPace", "kernel_pace"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

LIMIT = float(np.log(3.0))
"""Bound on the contribution of one pair, as a logarithm: a ratio above three has another reason than a slow device."""
OFTEN = 0.5
"""Least share of a rank's steps in which it runs a kernel alone, for its duration to count as usual. In fewer steps it
may run alone only because this or another rank is slow."""
FEW = 12
"""With up to this many ranks, a rank is left out of the median that it is compared with."""


@dataclass(slots=True)
class KernelPace:
    """Logarithms of kernel durations over those of the peers."""

    log: F64
    """Shape (R, S): mean over the pairs of a rank and step, weighted by duration; NaN where a rank has none."""
    numbers: I64
    """Numbers of the steps, shape (S,)."""
    _rank: I64
    _step: I64
    _pair: I64
    _took: F64
    """``_rank``, ``_step``, ``_pair`` and ``_took`` have a row for each kernel that ran alone, in order of pair, rank
    and duration: its rank, step and pair, and the logarithm of its duration in ns."""
    _peers: F64
    """Shape (pairs, R): logarithm of the other ranks' duration; NaN where none is known."""
    _runs: NDArray[np.bool_]
    """Shape (pairs, R): whether a rank has such a kernel at all, alone or not."""
    _by_rank: list[I64] = field(init=False)
    """Rows of each rank, ascending."""

    def __post_init__(self) -> None:
        order = np.argsort(self._rank, kind="stable")
        self._by_rank = np.split(order, np.searchsorted(self._rank[order], np.arange(1, len(self.log))))

    @property
    def lone(self) -> NDArray[np.bool_]:
        """Ranks that share no kernel with another, shape (R,): slow in all steps, they look the same as always."""
        return _lone(self._runs)

    def typical(self, cells: NDArray[np.bool_]) -> F64:
        """(R, S): the median over the pairs of a rank and step, by time, for some of them; NaN elsewhere.

        One kernel that takes several times as long moves the mean of a step, and not this.
        """
        found = np.full(cells.shape, np.nan)
        against = self._peers[self._pair, self._rank]
        rows = np.flatnonzero(cells[self._rank, self._step] & ~np.isnan(against))
        if not len(rows):
            return found
        cell, more = self._rank[rows] * cells.shape[1] + self._step[rows], self._took[rows] - against[rows]
        order = np.lexsort((more, cell))
        cell, more, weight = cell[order], more[order], np.exp(against[rows][order])
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        total = np.add.reduceat(weight, first)
        before = np.cumsum(weight) - weight
        middle = before[first] + total / 2
        place = np.minimum(np.searchsorted(before, middle, side="right") - 1, np.append(first[1:], len(cell)) - 1)
        found.ravel()[cell[first]] = more[place]
        return found

    def by_kind(self, column: int, steps: NDArray[np.bool_], kind_of_pair: I64, kinds: int) -> F64:
        """Log ratio by which each kind of kernel takes longer on a rank in these steps, shape (kinds,); NaN if unknown.

        A device may be slow in a part of its work only, for instance in what is bound by memory.
        """
        rows = self._by_rank[column]
        rows = rows[steps[self._step[rows]]]
        against = self._peers[self._pair[rows], column]
        rows, against = rows[~np.isnan(against)], against[~np.isnan(against)]
        kind, weight = kind_of_pair[self._pair[rows]], np.exp(against)
        total = np.bincount(kind, weight, kinds)
        more = np.bincount(kind, weight * (self._took[rows] - against), kinds)
        log: F64 = np.divide(more, total, out=np.full(kinds, np.nan), where=total > 0)
        return log

    def without(self, slow: NDArray[np.bool_]) -> KernelPace:
        """Compare the same kernels with other ranks and steps only, because slow ones do not show what is usual.

        A kernel that a rank runs alone in few steps is left out, too. A rank without kernels in common with the
        remaining ones is compared as before.

        Args:
            slow: ranks and steps to leave out, shape (R, S).
        """
        usual = _usual(self._rank, self._step, self._pair, self._took, ~slow, OFTEN)
        peers = _of_others(usual, self._runs, self.lone)
        log = _compared(self._rank, self._step, self._pair, self._took, peers, self.log.shape)
        peers = np.where(np.isnan(log).all(axis=1), self._peers, peers)
        log = np.where(np.isnan(log).all(axis=1, keepdims=True), self.log, log)
        return KernelPace(log, self.numbers, self._rank, self._step, self._pair, self._took, peers, self._runs)


def kernel_pace(table: KernelTable) -> KernelPace | None:
    """Compare the kernels of all ranks; None where none ran alone."""
    kept = table.alone & (table.length > 0)
    if not kept.any():
        return None
    # sorted once in the order in which medians are taken
    rows = np.flatnonzero(kept)
    rows = rows[np.lexsort((table.length[rows], table.rank[rows], table.pair[rows]))]
    rank, step, pair = table.rank[rows], table.step[rows], table.pair[rows]
    took = np.log(table.length[rows].astype(np.float64))
    everything = np.ones((table.ranks, len(table.numbers)), np.bool_)
    usual = _usual(rank, step, pair, took, everything, 0.0)
    runs = np.zeros((int(table.pair.max()) + 1, table.ranks), np.bool_)
    runs[table.pair, table.rank] = True
    runs = runs[: len(usual)]
    peers = _of_others(usual, ~np.isnan(usual), _lone(runs))
    log = _compared(rank, step, pair, took, peers, everything.shape)
    if np.isnan(log).all():
        return None
    pace = KernelPace(log, table.numbers, rank, step, pair, took, peers, runs)
    return pace.without(~everything)


def _compared(rank: I64, step: I64, pair: I64, took: F64, peers: F64, shape: tuple[int, ...]) -> F64:
    """Per rank and step the mean of ``took`` minus ``peers``, weighted by the peers' duration; NaN without a pair."""
    against = peers[pair, rank]
    paired = ~np.isnan(against)
    rank, step, against, took = rank[paired], step[paired], against[paired], took[paired]
    weight = np.exp(against)
    cell, size = rank * shape[1] + step, shape[0] * shape[1]
    total = np.bincount(cell, weight, size)
    more = np.bincount(cell, weight * np.clip(took - against, -LIMIT, LIMIT), size)
    log: F64 = np.divide(more, total, out=np.full(size, np.nan), where=total > 0)
    return log.reshape(shape)


def _usual(rank: I64, step: I64, pair: I64, took: F64, counts: NDArray[np.bool_], often: float) -> F64:
    """Median log duration over the steps that count, shape (pairs, R); rows must be sorted by pair, rank, duration.

    It is NaN where a rank ran such a kernel alone in no more than the share ``often`` of these steps.
    """
    ranks, size = len(counts), int(pair.max(initial=-1)) + 1
    usual = np.full(size * ranks, np.nan)
    recorded = np.zeros(counts.shape, np.bool_)
    recorded[rank, step] = True
    needed = often * (recorded & counts).sum(axis=1)
    kept = counts[rank, step]
    cell, took = (pair * ranks + rank)[kept], took[kept]
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    cells, count = cell[first], np.diff(first, append=len(cell))
    low, high = first + (count - 1) // 2, first + count // 2
    usual[cells] = np.where(count > needed[cells % ranks], (took[low] + took[high]) / 2, np.nan)
    return usual.reshape(size, ranks)


def _lone(runs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    shared = runs & (runs.sum(axis=1, keepdims=True) > 1)
    return np.asarray(runs.any(axis=0) & ~shared.any(axis=0))


def _of_others(usual: F64, runs: NDArray[np.bool_], lone: NDArray[np.bool_]) -> F64:
    """Per pair and rank the median of the other ranks; NaN where for most ranks that run such a kernel it is not known.
    Of a lone rank it is its own.

    Kernels that run alone on few ranks may do so because these ranks are late, and would be compared with each other.
    """
    ranks = usual.shape[1]
    known = ~np.isnan(usual)
    others_known = known.sum(axis=1, keepdims=True) - known
    enough = (others_known > 0) & (others_known >= OFTEN * (runs.sum(axis=1, keepdims=True) - runs))
    if ranks > FEW:  # with many ranks, leaving one out changes little
        others = np.broadcast_to(median_of_known(usual)[:, None], usual.shape)
    else:
        others = np.stack([median_of_known(np.delete(usual, column, axis=1)) for column in range(ranks)], axis=1)
    return np.where(lone, usual, np.where(enough, others, np.nan))
