"""All-to-all calls that take longer because one rank sends or receives most: the expert that everybody asks.

Such a call ends when the rank with most to move is through, so that all its members wait for the load of one. What the
transfer would take with no more than the next rank moves follows from its length by a power of the volume: 1 where
bandwidth is all, 0 where latency is. The power is taken from the window's own calls, where their volumes differ.
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
"""Ratio of the volumes of calls, nine tenths of them, from which on they tell the power; below, noise of the transfers
of a few per cent would."""
UNKNOWN = (0.5, 0.29)
"""Power of the volume and its standard error where nothing tells: evenly anywhere from 0 to 1."""


@dataclass(frozen=True, slots=True)
class FullerCalls:
    """What a rank's fuller calls would take less, were it asked no more than the next. ns."""

    edges: I64
    """Transfers, those of all members."""
    less: F64
    own: float
    """Sum over the rank's own transfers."""
    unsure: float
    """Standard error of that."""


def fuller_calls(window: Window, column: int) -> FullerCalls:
    """Look at the all-to-all calls in which this rank moves more than all other members."""
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
    # d/dp of 1 - r ** p
    slope = graph.work[edges] * -np.log(ratio[call]) * ratio[call] ** power
    chosen = fuller[call]
    return FullerCalls(edges[chosen], less[chosen], float(less[chosen & own].sum()), float(slope[own].sum()) * error)


def power_of_volume(volume: F64, took: F64) -> tuple[float, float]:
    """Return by which power of their volume the transfers of calls grow, from 0 to 1, and its standard error."""
    real = (volume > 0) & (took > 0)
    x, y = np.log(volume[real]), np.log(took[real])
    if len(x) < 3 or np.quantile(x, 0.95) - np.quantile(x, 0.05) < np.log(VARIED):
        return UNKNOWN
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    error = float(np.sqrt(((y - slope * x) ** 2).sum() / (len(x) - 2) / (x @ x)))
    return float(np.clip(slope, 0.0, 1.0)), min(error, UNKNOWN[1])


def _volumes(window: Window) -> F64:
    """Per member of a call the elements that it sends or receives, whichever is more."""
    matched = window.matched
    volume = np.zeros(len(matched.call))
    for column, view in enumerate(window.views):
        mine, calls = matched.of(column), view.trace.collectives
        volume[mine] = np.maximum(calls.in_elements, calls.out_elements)[matched.row[mine]]
    return volume
