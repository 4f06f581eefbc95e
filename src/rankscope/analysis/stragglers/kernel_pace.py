"""How much longer a rank's kernels take than the same kernels of other ranks.

Pairs of the same work (:mod:`kernel_table`) occur thousands of times in a window, on ranks of any role: stages of a
pipeline run the same layers, too. What differs in count or in shape is other work, not slower work, and pairs with
nothing. Pairs count only where neither kernel ran beside communication of its own rank, or whoever waits would look
slow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.stragglers.kernel_table import KernelTable
from rankscope.medians import median_of_known

__all__ = ["KernelPace", "kernel_pace"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

LIMIT = float(np.log(3.0))
"""One pair says no more than this: what takes three times as long is something else."""
OFTEN = 0.5
"""Share of a rank's steps. What it runs alone in fewer of them it may run alone only when somebody is slow, itself or
another, and then that does not say what is usual."""
FEW = 12
"""With up to so many ranks a rank is left out of what it is compared with."""


@dataclass(slots=True)
class KernelPace:
    """Logarithms of kernel time over that of the peers."""

    log: F64
    """(R, S): mean over the pairs of a rank and step, by time; NaN where a rank has none."""
    numbers: I64
    """(S,): the steps' numbers."""
    _rank: I64
    _step: I64
    _pair: I64
    _took: F64
    """A row for each kernel that ran alone, in order of pair, rank and length: whose, when, which, and the logarithm of
    its length."""
    _peers: F64
    """(pairs, R): the logarithm of what the others need; NaN where nobody has it."""
    _runs: NDArray[np.bool_]
    """(pairs, R): whether a rank has such a kernel at all, alone or not."""

    def by_kind(self, column: int, steps: NDArray[np.bool_], kind_of_pair: I64, kinds: int) -> F64:
        """(kinds,): how much longer each kind of kernel takes on a rank in these steps, as a logarithm; NaN unknown.

        A device can be slow in some of its work only: in what is bound by memory, say.
        """
        against = self._peers[self._pair, self._rank]
        mine = (self._rank == column) & steps[self._step] & ~np.isnan(against)
        kind, weight = kind_of_pair[self._pair[mine]], np.exp(against[mine])
        total = np.bincount(kind, weight, kinds)
        more = np.bincount(kind, weight * (self._took[mine] - against[mine]), kinds)
        log: F64 = np.divide(more, total, out=np.full(kinds, np.nan), where=total > 0)
        return log

    def without(self, slow: NDArray[np.bool_]) -> KernelPace:
        """The same kernels, compared with those of other ranks and steps only: what is slow does not say what is usual.

        ``slow`` is (R, S). A kernel that a rank runs alone in few steps says nothing either. A rank that has no kernel
        in common with the rest is compared as before.
        """
        usual = _usual(self._rank, self._step, self._pair, self._took, ~slow, OFTEN)
        peers = _of_others(usual, self._runs)
        log = _compared(self._rank, self._step, self._pair, self._took, peers, self.log.shape)
        peers = np.where(np.isnan(log).all(axis=1), self._peers, peers)
        log = np.where(np.isnan(log).all(axis=1, keepdims=True), self.log, log)
        return KernelPace(log, self.numbers, self._rank, self._step, self._pair, self._took, peers, self._runs)


def kernel_pace(table: KernelTable) -> KernelPace | None:
    """Compare the kernels of all ranks; None where fewer than two ranks have kernels in common."""
    kept = table.alone & (table.length > 0)
    if not kept.any():
        return None
    # in the order in which medians are taken, once for all
    rows = np.flatnonzero(kept)
    rows = rows[np.lexsort((table.length[rows], table.rank[rows], table.pair[rows]))]
    rank, step, pair = table.rank[rows], table.step[rows], table.pair[rows]
    took = np.log(table.length[rows].astype(np.float64))
    everything = np.ones((table.ranks, len(table.numbers)), np.bool_)
    usual = _usual(rank, step, pair, took, everything, 0.0)
    runs = np.zeros((int(table.pair.max()) + 1, table.ranks), np.bool_)
    runs[table.pair, table.rank] = True
    runs = runs[: len(usual)]
    peers = _of_others(usual, ~np.isnan(usual))
    log = _compared(rank, step, pair, took, peers, everything.shape)
    if np.isnan(log).all():
        return None
    pace = KernelPace(log, table.numbers, rank, step, pair, took, peers, runs)
    return pace.without(~everything)


def _compared(rank: I64, step: I64, pair: I64, took: F64, peers: F64, shape: tuple[int, ...]) -> F64:
    """Per rank and step the mean of took less peers, weighed by the peers' time; NaN without a pair."""
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
    """(pairs, R): the median over the steps that count; NaN where a rank ran no such kernel alone in more than
    ``often`` of these. Rows are in order of pair, rank and length."""
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


def _of_others(usual: F64, runs: NDArray[np.bool_]) -> F64:
    """Per pair and rank the median of the other ranks; NaN where most of those that run such a kernel say nothing.

    What few ranks run alone they may run alone because they are late, and would be compared with each other.
    """
    ranks = usual.shape[1]
    known = ~np.isnan(usual)
    said = known.sum(axis=1, keepdims=True) - known
    enough = (said > 0) & (said >= OFTEN * (runs.sum(axis=1, keepdims=True) - runs))
    if ranks > FEW:  # leaving one of many out changes nothing that matters
        others = np.broadcast_to(median_of_known(usual)[:, None], usual.shape)
    else:
        others = np.stack([median_of_known(np.delete(usual, column, axis=1)) for column in range(ranks)], axis=1)
    return np.where(enough, others, np.nan)
