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
from rankscope.medians import median_of_known_others

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


MOSTLY = 0.75
"""Share of a kernel beside communication from which on it tells how much longer kernels take there; one beside none for
as much says what it takes alone."""


ALIKE = 0.3
"""Of the median length. Kernels of one size vary by a few per cent, beside communication by up to a fifth."""


def lost_beside(table: KernelTable, slower: F64) -> float:
    """Share of their pace that kernels lose beside communication: the median over them, by time; 0 where none tell.

    A kernel beside communication is compared with the same one (kind and place in the step) that ran alone, on whatever
    rank: where somebody is late, that is how others differ from it. Where there is none it is compared with its like on
    the same rank, but for kinds whose kernels differ among themselves: their sizes are not in the trace.

    Args:
        table: the kernels.
        slower: (R, S) logarithm by which a rank's device is slower in a step.
    """
    length = table.length.astype(np.float64) * np.exp(-slower[table.rank, table.step])
    found = _lost(table.pair, length, table)
    if not len(found[0]):
        key = table.rank * (int(table.kind.max(initial=-1)) + 1) + table.kind
        mostly = table.beside > MOSTLY
        alike = _alike(key, length, table.alone) & _alike(key, length, mostly)
        found = _lost(key, np.where(alike[key], length, 0.0), table)
    lost, time = found
    if not len(lost):
        return 0.0
    order = np.argsort(lost)
    weight = np.cumsum(time[order])
    return float(np.clip(lost[order][np.searchsorted(weight, weight[-1] / 2)], 0.0, 0.5))


def _lost(key: I64, length: F64, table: KernelTable) -> tuple[F64, F64]:
    """What kernels that ran mostly beside communication, and whose like ran mostly alone, lost; and their lengths.

    Of a share f beside, and the share c of the pace that is lost there, a kernel does length (1 - c f) of its work.
    """
    apart = (table.beside < 1.0 - MOSTLY) & (length > 0)
    least = _medians(key, table.beside, apart)[key]
    usual = _medians(key, length, apart)[key]
    telling = (table.beside >= MOSTLY) & (usual > 0) & (length > 0)
    took, beside, usual, least = length[telling], table.beside[telling], usual[telling], least[telling]
    return (took - usual) / (took * beside - usual * least), took


def _alike(key: I64, length: F64, counts: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """By key whether the rows that count are of about one length: nine in ten within :data:`ALIKE` of their median."""
    middle = _medians(key, length, counts)[key]
    away = counts & (np.abs(length - middle) > ALIKE * middle)
    size = int(key.max(initial=-1)) + 1
    alike: NDArray[np.bool_] = np.bincount(key[away], minlength=size) <= 0.1 * np.bincount(key[counts], minlength=size)
    return alike


def kernel_work(table: KernelTable, peers: Sequence[Sequence[int]]) -> KernelWork:
    """Count the work of each rank and step."""
    usual = _usual(table)
    cell = table.rank * len(table.numbers) + table.step
    work = np.asarray(np.bincount(cell, usual, table.ranks * len(table.numbers)), np.float64).reshape(table.ranks, -1)
    work = np.where(work > 0, work, np.nan)  # windows of some ranks can be a step apart
    log = np.zeros(work.shape)
    for team in {id(team): list(team) for team in peers if len(team) > 1}.values():
        own = np.log(work[team])
        log[team] = own - median_of_known_others(own.T).T
    return KernelWork(log, usual)


def _usual(table: KernelTable) -> F64:
    """Per row the usual length of its kind; of one that never ran alone its median beside communication."""
    alone = _medians(table.kind, table.length, table.alone)
    every = _medians(table.kind, table.length, np.ones(len(table.kind), np.bool_))
    return np.where(alone > 0, alone, every)[table.kind]


def _medians(key: I64, length: NDArray[np.int64] | F64, counts: NDArray[np.bool_]) -> F64:
    """By key the median length of the rows that count, 0 where there are none."""
    found = np.zeros(int(key.max(initial=-1)) + 1)
    key, length = key[counts], length[counts]
    order = np.lexsort((length, key))
    keys, first, count = np.unique(key[order], return_index=True, return_counts=True)
    low, high = first + (count - 1) // 2, first + count // 2
    found[keys] = (length[order][low] + length[order][high]) / 2
    return found
