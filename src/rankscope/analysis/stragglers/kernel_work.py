"""How much work a rank's device is given, beside that of the ranks of its role: counted, not timed.

Every kind of kernel (name, grid, shapes) has a usual length, the median over all ranks and steps where it ran beside
no communication. The work of a rank in a step is the sum of the usual lengths of its kernels. So a slow device has no
more work than others, a rank with longer sequences has, and waiting beside a collective changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.stragglers.kernel_table import KernelTable
from rankscope.analysis.stragglers.statistics import median_of_known

__all__ = ["KernelWork", "kernel_work", "lost_beside"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KernelWork:
    """Usual lengths, ns."""

    log: F64
    """(R, S): logarithm of a rank's work in a step over its peers' median; 0 for a rank without peers, NaN where it or
    all of them recorded no work."""
    usual: F64
    """Per row of the table."""


MOSTLY = 0.5
"""Share of a kernel beside communication from which on it tells how much longer kernels take there."""


def lost_beside(table: KernelTable) -> float:
    """Share of their pace that kernels lose beside communication: the median over them, by time; 0 where none tell.

    A kernel is compared with its like that ran alone on the same rank, so that a slow device says the same as others.
    """
    key = table.rank * (int(table.kind.max(initial=-1)) + 1) + table.kind
    usual = _medians(key, table.length, table.alone)[key]
    telling = (table.beside > MOSTLY) & (usual > 0) & (table.length > 0)
    length = table.length[telling].astype(np.float64)
    if not len(length):
        return 0.0
    lost = (1.0 - usual[telling] / length) / table.beside[telling]
    order = np.argsort(lost)
    weight = np.cumsum(length[order])
    return float(np.clip(lost[order][np.searchsorted(weight, weight[-1] / 2)], 0.0, 0.5))


def kernel_work(table: KernelTable, peers: Sequence[Sequence[int]]) -> KernelWork:
    """Count the work of each rank and step."""
    usual = _usual(table)
    cell = table.rank * len(table.numbers) + table.step
    work = np.asarray(np.bincount(cell, usual, table.ranks * len(table.numbers)), np.float64).reshape(table.ranks, -1)
    work = np.where(work > 0, work, np.nan)  # windows of some ranks can be a step apart
    log = np.zeros(work.shape)
    for column, team in enumerate(peers):
        others = [c for c in team if c != column]
        if others:
            log[column] = np.log(work[column]) - median_of_known(np.log(work[others]).T)
    return KernelWork(log, usual)


def _usual(table: KernelTable) -> F64:
    """Per row the usual length of its kind; of one that never ran alone its median beside communication."""
    alone = _medians(table.kind, table.length, table.alone)
    every = _medians(table.kind, table.length, np.ones(len(table.kind), np.bool_))
    return np.where(alone > 0, alone, every)[table.kind]


def _medians(key: I64, length: I64, counts: NDArray[np.bool_]) -> F64:
    """By key the median length of the rows that count, 0 where there are none."""
    found = np.zeros(int(key.max(initial=-1)) + 1)
    key, length = key[counts], length[counts]
    order = np.lexsort((length, key))
    keys, first, count = np.unique(key[order], return_index=True, return_counts=True)
    low, high = first + (count - 1) // 2, first + count // 2
    found[keys] = (length[order][low] + length[order][high]) / 2
    return found
