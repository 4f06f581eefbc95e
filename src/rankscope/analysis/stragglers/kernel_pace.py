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
from rankscope.analysis.stragglers.statistics import median_of_known

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
    """A row for each kernel that ran alone: whose, when, which, and the logarithm of its length."""
    _peers: F64
    """(pairs, R): the logarithm of what the others need; NaN where nobody has it."""

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

        ``slow`` is (R, S). A kernel that a rank runs
        alone in few steps does not either. A rank that has no kernel in common with the rest is compared as before.
        """
        usual = _usual(self._rank, self._step, self._pair, self._took, ~slow, OFTEN)
        peers = _of_others(usual)
        log = _compared(self._rank, self._step, self._pair, self._took, peers, self.log.shape)
        peers = np.where(np.isnan(log).all(axis=1), self._peers, peers)
        log = np.where(np.isnan(log).all(axis=1, keepdims=True), self.log, log)
        return KernelPace(log, self.numbers, self._rank, self._step, self._pair, self._took, peers)


def kernel_pace(table: KernelTable) -> KernelPace | None:
    """Compare the kernels of all ranks; None where fewer than two ranks have kernels in common."""
    kept = table.alone & (table.length > 0)
    rank, step, pair = table.rank[kept], table.step[kept], table.pair[kept]
    took = np.log(table.length[kept].astype(np.float64))
    if not len(rank):
        return None
    everything = np.ones((table.ranks, len(table.numbers)), np.bool_)
    peers = _of_others(_usual(rank, step, pair, took, everything, 0.0))
    log = _compared(rank, step, pair, took, peers, everything.shape)
    if np.isnan(log).all():
        return None
    pace = KernelPace(log, table.numbers, rank, step, pair, took, peers)
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
    ``often`` of these."""
    ranks, size = len(counts), int(pair.max(initial=-1)) + 1
    usual = np.full(size * ranks, np.nan)
    recorded = np.zeros(counts.shape, np.bool_)
    recorded[rank, step] = True
    needed = often * (recorded & counts).sum(axis=1)
    kept = counts[rank, step]
    cell, took = (pair * ranks + rank)[kept], took[kept]
    order = np.lexsort((took, cell))
    cells, first, count = np.unique(cell[order], return_index=True, return_counts=True)
    low, high = first + (count - 1) // 2, first + count // 2
    usual[cells] = np.where(count > needed[cells % ranks], (took[order][low] + took[order][high]) / 2, np.nan)
    return usual.reshape(size, ranks)


def _of_others(usual: F64) -> F64:
    """Per pair and rank the median of the other ranks."""
    ranks = usual.shape[1]
    if ranks > FEW:  # leaving one of many out changes nothing that matters
        everyone = median_of_known(usual)
        alone = ~np.isnan(usual)
        only = alone & (alone.sum(axis=1) == 1)[:, None]
        return np.where(only, np.nan, everyone[:, None])
    return np.stack([median_of_known(np.delete(usual, column, axis=1)) for column in range(ranks)], axis=1)
