"""Ranks whose device gets more work than other ranks of their role (:mod:`kernel_work`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.replay.graph import Work
from rankscope.analysis.stragglers.candidates import Candidate, Window
from rankscope.analysis.stragglers.fuller_calls import fuller_calls
from rankscope.analysis.stragglers.kernel_table import KernelTable
from rankscope.analysis.stragglers.kernel_work import kernel_work
from rankscope.analysis.stragglers.profile import work_difference
from rankscope.analysis.stragglers.statistics import above
from rankscope.statistics.medians import median_along

__all__ = ["more_work"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def more_work(window: Window, table: KernelTable) -> list[Candidate]:
    """Return one candidate for each rank whose kernels, at their usual durations, take longer than its peers'."""
    work = kernel_work(table, window.plan.peers)
    always, mean, error = above(work.log)
    found: list[Candidate] = []
    if not always.any():
        return found
    place, size = window.segments(table), window.plan.size
    spent = np.array([_by_segment(place[own], work.usual[own], size) for own in map(table.of, range(table.ranks))])
    for column in np.flatnonzero(always).tolist():
        peers = [p for p in window.plan.peers[column] if p != column]
        own, usual = spent[column], median_along(spent[peers], axis=0)[0]
        share = np.divide(own - usual, own, out=np.zeros(size), where=own > 0)
        edges = window.edges(column, Work.DEVICE)
        graph = window.replay.graph
        less = graph.work[edges] * np.maximum(share[graph.segment[edges]], 0.0)
        extra = float(np.maximum(own - usual, 0.0).sum())
        cause = _cause(window, column, peers, np.flatnonzero(own > usual))
        if cause is not None:
            asked = fuller_calls(window, column)
            unsure = asked.unsure / max(extra + asked.own, 1e-9)
            relative = float(np.hypot(error[column] / mean[column], unsure))
            edges, less = np.concatenate((edges, asked.edges)), np.concatenate((less, asked.less))
            found.append(Candidate(column, cause, edges, less, extra, relative))
    return found


def _by_segment(place: I64, ns: F64, size: int) -> F64:
    return np.asarray(np.bincount(place, ns, size)[:size], np.float64)


def _cause(window: Window, column: int, peers: Sequence[int], segments: I64) -> str | None:
    views, profiles = window.views, window.profiles
    middle = peers[len(peers) // 2]
    kinds = work_difference(views[column], views[middle], profiles[column], profiles[middle], segments)
    return next((kind for kind in kinds if kind != "slow_compute"), None)
