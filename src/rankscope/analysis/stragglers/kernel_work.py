"""How much work a rank's device gets, compared with the ranks of its role: counted, not timed.

Every kind of kernel (name, grid, shapes) has a usual duration: the median over all ranks and steps of those that did
not overlap communication. The work of a rank in a step is the sum of the usual durations of its kernels. A slow device
therefore has no more work than others, a rank with longer sequences has, and overlap with a collective has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.stragglers.kernel_table import KernelTable
from rankscope.statistics.medians import median_of_known_others, medians_by_key

__all__ = ["KernelWork", "kernel_work", "overlap_loss"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KernelWork:
    """Work of each rank and step. Times in ns."""

    log: F64
    """Shape (R, S): logarithm of a rank's work in a step over its peers' median; 0 for a rank without peers, NaN where
    the rank or all its peers recorded no work."""
    usual: F64
    """Usual duration of each row of the table."""


MOSTLY = 0.75
"""Least share of a kernel's duration that overlaps communication at which the kernel shows how much slower kernels run
there. A kernel that is free of overlap for at least this share shows its duration alone."""


ALIKE = 0.3
"""Largest deviation from the median duration, as a share of it, for kernels of one size. These vary by a few per cent,
and by up to a fifth where they overlap communication."""


def overlap_loss(table: KernelTable, length: F64) -> float:
    """Share of their speed that kernels lose while communication runs: median over the kernels, weighted by duration.

    A kernel that overlaps communication is compared with the same one (kind and ordinal number in the step) that ran
    alone on any rank. If a rank is late, the others differ from it in exactly this way. Without such kernels it is
    compared with kernels of its kind on the same rank, except for kinds whose durations vary, because their sizes are
    not in the trace.

    Args:
        table: the kernels.
        length: duration of each of its rows if no device were slower than the others, in ns. A device may be slower in
            some kinds of kernels only.

    Returns:
        A share from 0 to 0.5; 0 where no kernel shows it.
    """
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
    """Return the lost share of speed, and the duration, of overlapped kernels that have a counterpart alone.

    If a kernel overlaps communication for the share f of its duration, and loses the share c of its speed there, it
    does duration x (1 - c f) of work.
    """
    apart = (table.beside < 1.0 - MOSTLY) & (length > 0)
    least = _medians(key, table.beside, apart)[key]
    usual = _medians(key, length, apart)[key]
    telling = (table.beside >= MOSTLY) & (usual > 0) & (length > 0)
    took, beside, usual, least = length[telling], table.beside[telling], usual[telling], least[telling]
    more_beside = took * beside - usual * least
    some = more_beside > 0  # else it was no longer beside communication than what it is compared with
    return (took - usual)[some] / more_beside[some], took[some]


def _alike(key: I64, length: F64, counts: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Per key whether the rows that count have similar durations: nine in ten within :data:`ALIKE` of their median."""
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
    work = np.where(work > 0, work, np.nan)  # windows of some ranks may be a step apart
    log = np.zeros(work.shape)
    for team in map(list, {id(team): team for team in peers if len(team) > 1}.values()):
        own = np.log(work[team])
        log[team] = own - median_of_known_others(own.T).T
    return KernelWork(log, usual)


def _usual(table: KernelTable) -> F64:
    """Per row the usual duration of its kind; if the kind never ran alone, its median over all of its kernels."""
    alone = _medians(table.kind, table.length, table.alone)
    every = _medians(table.kind, table.length, np.ones(len(table.kind), np.bool_))
    return np.where(alone > 0, alone, every)[table.kind]


def _medians(key: I64, length: NDArray[np.int64] | F64, counts: NDArray[np.bool_]) -> F64:
    """Per key the median duration of the rows that count, 0 where there are none."""
    found = medians_by_key(key[counts], length[counts].astype(np.float64), int(key.max(initial=-1)) + 1)
    return np.nan_to_num(found)
