"""Time of each operator of a rank: device time of the kernels that it launched; without a device its self time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank.self_time import self_time as self_time_of
from rankscope.analysis.rank.view import RankView
from rankscope.trace.columns import Category
from rankscope.trace.names import Kind

__all__ = ["OperatorWork", "operator_of_kernels", "operator_work", "self_time"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


@dataclass(slots=True)
class OperatorWork:
    """One row per operator call that did device work (without a device: any operator) in a recorded step."""

    event: I64
    """Row of the rank's events."""
    ns: F64
    """Device time of its kernels, or its self time."""


def operator_work(view: RankView) -> OperatorWork:
    """Return the operators of the recorded steps with the time of each."""
    events = view.trace.events
    if not view.device:
        chosen = view.chain & (events.category == Category.CPU_OP) & (view.kind == Kind.COMPUTE)
        if view.steps:
            chosen &= events.step >= 0
        own = self_time(view)
        rows = np.flatnonzero(chosen)
        return OperatorWork(rows, own[rows])
    kernels, operators = operator_of_kernels(view)
    known = operators >= 0
    rows, place = np.unique(operators[known], return_inverse=True)
    ns = np.bincount(place, events.duration[kernels[known]], len(rows))
    return OperatorWork(rows, ns.astype(np.float64))


def operator_of_kernels(view: RankView) -> tuple[I64, I64]:
    """Return the compute kernels of the recorded steps, and for each the operator that launched it, -1 if unknown."""
    events = view.trace.events
    chosen = (view.kind == Kind.COMPUTE) & (events.stream >= 0)
    if view.steps:
        chosen &= events.step >= 0
    kernels = np.flatnonzero(chosen)
    operators = np.flatnonzero((events.category == Category.CPU_OP) & (events.external_id >= 0))
    if not len(operators) or not len(kernels):
        return kernels, np.full(len(kernels), -1, np.int64)
    order = operators[np.argsort(events.external_id[operators], kind="stable")]
    wanted = events.external_id[kernels]
    place = np.minimum(np.searchsorted(events.external_id[order], wanted), len(order) - 1)
    found = (events.external_id[order[place]] == wanted) & (wanted >= 0)
    return kernels, np.where(found, order[place], -1).astype(np.int64)


def self_time(view: RankView) -> F64:
    """Return per event the self time of an operator, ns; 0 for other events."""
    events = view.trace.events
    own = np.zeros(len(events))
    rows = np.flatnonzero(events.category == Category.CPU_OP)
    own[rows] = self_time_of(events.tid[rows], events.start[rows], events.duration[rows])
    return own
