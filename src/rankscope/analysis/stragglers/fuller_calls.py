"""All-to-all calls that take longer because one rank sends or receives most, such as that of a popular expert.

Such a call ends when the rank with the largest volume is done, so that all its members wait for the load of one. The
transfer time at the volume of the next rank is estimated by a power law in the volume, whose exponent is 1 if bandwidth
dominates and 0 if latency does. The exponent is fitted to the window's own calls, if their volumes differ enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.stragglers.candidates import Window

__all__ = ["FullerCalls", "fuller_calls", "power_of_volume"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

VARIED = 1.25
"""Least ratio between the 95 % and the 5 % quantile of the volumes for a fit of the exponent. With a smaller ratio,
noise of a few per cent in the transfers would determine it."""
UNKNOWN = (0.5, 0.29)
"""Exponent and its standard error if it cannot be fitted: those of a uniform distribution from 0 to 1."""


@dataclass(frozen=True, slots=True)
class FullerCalls:
    """Time that a rank's fuller calls would save if its volume were that of the next rank. Times in ns."""

    edges: I64
    """Edges of the transfers of these calls, on all members."""
    less: F64
    own: float
    """Time saved, summed over the rank's own transfers."""
    unsure: float
    """Standard error of ``own``."""


def fuller_calls(window: Window, column: int) -> FullerCalls:
    """Examine the all-to-all calls in which this rank moves more than all other members."""
    matched, graph = window.matched, window.replay.graph
    edges, member = graph.transfers()
    kept = member >= 0
    edges, member = edges[kept], member[kept]
    asked = np.array([kind == "all_to_all" for kind in matched.kind], np.bool_)
    if not asked.any():
        return FullerCalls(np.empty(0, np.int64), np.empty(0), 0.0, 0.0)
    volume = _volumes(window)
    most = np.maximum.reduceat(volume, matched.first[:-1])
    mine = matched.of(column)
    others = volume.copy()
    others[mine] = 0.0
    next_most = np.maximum.reduceat(others, matched.first[:-1])
    fuller = np.zeros(len(matched), np.bool_)
    fuller[matched.call[mine]] = True
    fuller &= asked & (next_most > 0) & (next_most < most)
    length = np.zeros(len(matched.call))
    length[member] = graph.work[edges]
    took = np.maximum.reduceat(length, matched.first[:-1])
    power, error = power_of_volume(most[asked], took[asked])
    ratio = np.divide(next_most, most, out=np.ones(len(matched)), where=fuller)
    call = matched.call[member]
    less = graph.work[edges] * (1.0 - ratio[call] ** power)
    own = matched.column[member] == column
    # derivative of 1 - r ** p by p, times the work
    slope = graph.work[edges] * -np.log(ratio[call]) * ratio[call] ** power
    chosen = fuller[call]
    return FullerCalls(edges[chosen], less[chosen], float(less[chosen & own].sum()), float(slope[own].sum()) * error)


def power_of_volume(volume: F64, took: F64) -> tuple[float, float]:
    """Fit the exponent (0 to 1) by which the transfer times of calls grow with their volume, and its standard error.

    Args:
        volume: largest volume of each call, in elements.
        took: longest transfer of each call, in ns.
    """
    real = (volume > 0) & (took > 0)
    x, y = np.log(volume[real]), np.log(took[real])
    if len(x) < 3 or np.quantile(x, 0.95) - np.quantile(x, 0.05) < np.log(VARIED):
        return UNKNOWN
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    error = float(np.sqrt(((y - slope * x) ** 2).sum() / (len(x) - 2) / (x @ x)))
    return float(np.clip(slope, 0.0, 1.0)), min(error, UNKNOWN[1])


def _volumes(window: Window) -> F64:
    """Number of elements that each member of a call sends or receives, whichever is more."""
    matched = window.matched
    volume = np.zeros(len(matched.call))
    for column, view in enumerate(window.views):
        mine, calls = matched.of(column), view.trace.collectives
        volume[mine] = np.maximum(calls.in_elements, calls.out_elements)[matched.row[mine]]
    return volume
