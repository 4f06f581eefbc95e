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

__all__ = ["KernelWork", "kernel_work"]

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KernelWork:
    """Usual lengths, ns."""

    log: F64
    """(R, S): logarithm of a rank's work in a step over its peers' median; 0 for a rank without peers, NaN where it or
    all of them recorded no work."""
    usual: F64
    """Per row of the table."""


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
    size = int(table.kind.max(initial=-1)) + 1
    usual = np.zeros(size)
    for counts in (np.ones(len(table.kind), np.bool_), table.alone):
        kind, length = table.kind[counts], table.length[counts]
        order = np.lexsort((length, kind))
        kinds, first, count = np.unique(kind[order], return_index=True, return_counts=True)
        low, high = first + (count - 1) // 2, first + count // 2
        usual[kinds] = (length[order][low] + length[order][high]) / 2
    return usual[table.kind]
