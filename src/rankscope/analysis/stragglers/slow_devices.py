"""Ranks whose device takes longer for the same kernels (:mod:`kernel_pace`), in all steps or in some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.replay.graph import Work
from rankscope.analysis.stragglers.candidates import Candidate, Window
from rankscope.analysis.stragglers.kernel_pace import KernelPace, kernel_pace
from rankscope.analysis.stragglers.kernel_table import KernelTable
from rankscope.analysis.stragglers.kernel_work import overlap_loss
from rankscope.analysis.stragglers.statistics import (
    FALSE,
    above,
    discoveries,
    normal_tail,
    robust_scatter,
    smallest_visible,
)
from rankscope.statistics.medians import median_of_known_others, medians_by_key

__all__ = ["longer_by_kind", "slow_devices"]

F64 = NDArray[np.float64]

TYPICAL = 0.5
"""A device is slow in a step where the median kernel takes longer by so much of what the mean one does: it is slow at
most of its work. Of a healthy one a few kernels may take several times as long."""
EXPLAINED = float(np.log(1.6))
"""Logarithm of the largest ratio by which kernels took longer beside communication (measured)."""
ROUNDS = 3
"""Number of repeated comparisons, each with the ranks and steps that were not slow in the one before."""


def slow_devices(window: Window, table: KernelTable) -> tuple[list[Candidate], float, float]:
    """Find the ranks whose device is slower than the others.

    Returns:
        One candidate for each such rank; the share of their speed that kernels lose beside communication; and the
        logarithm by which a device must be slower in all steps to be found, infinite where unknown.
    """
    pace, length = kernel_pace(table), table.length.astype(np.float64)
    if pace is None:
        return [], overlap_loss(table, length), np.inf
    pace = pace.without(~window.trusted[:, None] & np.ones(pace.log.shape, np.bool_))
    log, error = _slower(pace)
    shows = np.inf if pace.lone.any() else smallest_visible(pace.log[window.trusted])
    for _ in range(ROUNDS):
        slow = (log > 0) | ~window.trusted[:, None]
        if not (log > 0).any():
            return [], overlap_loss(table, length), shows
        pace = pace.without(slow)
        log, error = _slower(pace)
        if ((log > 0) | ~window.trusted[:, None] == slow).all():
            break
    columns = np.flatnonzero((log > 0).any(axis=1)).tolist()
    longer, lost = longer_by_kind(table, pace, log, columns)
    place, size = window.segments(table), window.plan.size
    found = []
    for column in columns:
        mine = table.of(column)
        usual = length[mine] * np.exp(-longer[column][table.kind[mine]] * (log[column] > 0)[table.step[mine]])
        own, other = (np.bincount(place[mine], ns, size)[:size] for ns in (length[mine], usual))
        share = np.clip(np.divide(own - other, own, out=np.zeros(size), where=own > 0), 0.0, 1.0)
        edges, graph = window.edges(column, Work.DEVICE), window.replay.graph
        less = graph.work[edges] * share[graph.segment[edges]]
        relative = float(error[column]) / float(log[column].max())
        found.append(Candidate(column, "slow_compute", edges, less, float((own - other).sum()), relative))
    return found, lost, shows


def longer_by_kind(
    table: KernelTable, pace: KernelPace, log: F64, columns: Sequence[int]
) -> tuple[dict[int, F64], float]:
    """Return by how much each slow rank takes longer for each kind of kernel (log, shape (kinds,)), and the share of
    their speed that kernels lose beside communication.

    Kinds that run alone on the slow rank only, because the others wait beside them, are compared as they ran, with that
    loss taken off. They are taken to be slower by no more than the mean of the others, which needs no such estimate: a
    device that is slow at what is bound by memory need not be slow at matrix products. What takes longer than
    communication beside it explains needs none either.
    """
    kind_of_pair = np.zeros(int(table.pair.max()) + 1, np.int64)
    kind_of_pair[table.pair] = table.kind
    kinds = int(table.kind.max()) + 1
    slow = log[table.rank, table.step] > 0
    paired = {column: pace.by_kind(column, log[column] > 0, kind_of_pair, kinds) for column in columns}
    evenly = table.length.astype(np.float64)
    own = {column: table.of(column) for column in columns}
    rows = {column: mine.start + np.flatnonzero(slow[mine]) for column, mine in own.items()}
    for column, longer in paired.items():
        mine = rows[column]
        evenly[mine] *= np.exp(-np.nan_to_num(longer, nan=np.inf)[table.kind[mine]])  # 0 tells nothing of the loss
    lost = overlap_loss(table, evenly)
    alone = np.log(np.maximum(table.length * (1.0 - lost * table.beside), 1.0))
    usual = medians_by_key(table.kind[~slow], alone[~slow], kinds)
    for column, longer in paired.items():
        mine = rows[column]
        seen = np.maximum(medians_by_key(table.kind[mine], alone[mine], kinds) - usual, 0.0)
        seen = np.where(seen > EXPLAINED, seen, np.fmin(seen, log[column].max()))
        longer[:] = np.where(np.isnan(longer), seen, longer)
    return paired, lost


def _slower(pace: KernelPace) -> tuple[F64, F64]:
    """Return by how much a rank is slower in a step (log, shape (R, S), 0 where it is not), and its standard error per
    rank."""
    always, mean, error = above(np.where(pace.lone[:, None], np.nan, pace.log))
    log = np.where(always[:, None], mean[:, None], 0.0) * np.ones_like(pace.log)
    scatter = robust_scatter(pace.log[~always])
    if scatter > 0:
        # A step that is slow on all ranks (a warm-up, a power limit) makes none of them slower than the others.
        others = median_of_known_others(pace.log.T).T
        here = pace.log - np.where(others > 0, others, 0.0)
        steps = discoveries(normal_tail(here / scatter), FALSE) & ~always[:, None]
        # else it is a few kernels that took long, by whatever chance
        steps &= pace.typical(steps) >= TYPICAL * pace.log
        log = np.where(steps, pace.log, log)
        error = np.where(always, error, scatter)
    return log, error
