"""Arrival, wait and transfer of every matched call, on the aligned axis (ns from the clocks' origin).

``wait`` runs from a rank's own arrival to the last arrival, ``transfer`` from the last arrival to the rank's end.
Waiting is not cost: only a replay tells what a lateness costs (``whatif``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks import Clocks, matched_times
from rankscope.analysis.collectives import Matched
from rankscope.analysis.view import RankView

__all__ = ["Waits", "bus_bandwidth", "element_bytes", "measure_waits"]

F64 = NDArray[np.float64]


@dataclass(slots=True)
class Waits:
    """M x R arrays, NaN where the rank takes no part."""

    arrival: F64
    end: F64
    wait: F64
    transfer: F64
    last: NDArray[np.int32]
    """Column of the rank that arrived last."""
    second: F64
    """Arrival of the last but one: the last rank made the others wait from here on."""
    step: NDArray[np.int32]
    """M x R: index of the launching step on each rank, -1 unknown."""
    early: NDArray[np.bool_]
    """M: some member was not recorded yet when the first one arrived. Such a wait says nothing of the job (recording
    starts at another time on each rank) and is left out of sums of waits; the end still tells the clock."""


def measure_waits(views: Sequence[RankView], matched: Matched, clocks: Clocks) -> Waits:
    """Waits and transfers of one window."""
    starts, has = matched_times(views, matched, end=False)
    ends, _ = matched_times(views, matched, end=True)
    arrival, end = np.full(starts.shape, np.nan), np.full(starts.shape, np.nan)
    step = np.full(starts.shape, -1, np.int32)
    for column, view in enumerate(views):
        mine = has[:, column]
        arrival[mine, column] = clocks.aligned(column, starts[mine, column])
        end[mine, column] = clocks.aligned(column, ends[mine, column])
        step[mine, column] = view.trace.events.step[view.trace.collectives.event[matched.rows[mine, column]]]
    if not len(matched):
        nothing = np.empty((0, len(views)))
        return Waits(
            nothing, nothing, nothing, nothing, np.empty(0, np.int32), np.empty(0), step, np.empty(0, np.bool_)
        )
    low = np.where(has, arrival, -np.inf)
    latest = low.max(axis=1)
    last = low.argmax(axis=1).astype(np.int32)
    rest = low.copy()
    rest[np.arange(len(last)), last] = -np.inf
    # a clock error may put the last arrival after an end: nobody waited longer than his own call
    latest = np.minimum(latest, np.nanmin(np.where(has, end, np.inf), axis=1))
    wait = np.where(has, np.maximum(latest[:, None] - arrival, 0.0), np.nan)
    transfer = np.where(has, np.maximum(end - latest[:, None], 0.0), np.nan)
    begun = np.array([_recorded_from(v, clocks, c) for c, v in enumerate(views)])
    early = np.where(has, begun, -np.inf).max(axis=1) > np.where(has, arrival, np.inf).min(axis=1)
    return Waits(arrival, end, wait, transfer, last, rest.max(axis=1), step, early)


def _recorded_from(view: RankView, clocks: Clocks, column: int) -> float:
    """First sign of a rank on the aligned axis: its first event or step mark."""
    events, steps = view.trace.events, view.trace.steps
    signs = [*events.start[:1].tolist(), *steps.start[:1].tolist()]
    return float(clocks.aligned(column, np.array([min(signs)], np.int64))[0]) if signs else -np.inf


def element_bytes(dtype: str) -> int | None:
    """Size of one element by Kineto's type name, None when unknown."""
    plain = dtype.lower().replace("c10::", "")
    if plain in {"float", "int", "float32", "int32"}:
        return 4
    if plain in {"double", "long", "float64", "int64", "long int"}:
        return 8
    if plain in {"half", "bfloat16", "float16", "short", "short int"}:
        return 2
    if plain in {"byte", "char", "bool", "uint8", "int8"} or plain.startswith("float8"):
        return 1
    digits = re.search(r"(8|16|32|64)$", plain)
    return int(digits[1]) // 8 if digits else None


def bus_bandwidth(kind: str, size: int, in_bytes: float, out_bytes: float, transfer_ns: float) -> float | None:
    """Bus bandwidth in 10^9 bytes per second as NCCL tests define it; None where the kind has no such definition."""
    factors = {
        "all_reduce": (2.0 * (size - 1) / size, in_bytes),
        "all_gather": ((size - 1) / size, out_bytes),
        "reduce_scatter": ((size - 1) / size, in_bytes),
        "all_to_all": ((size - 1) / size, in_bytes),
        "broadcast": (1.0, in_bytes),
        "reduce": (1.0, in_bytes),
    }
    if kind not in factors or transfer_ns <= 0 or size < 2:
        return None
    factor, moved = factors[kind]
    return factor * moved / transfer_ns
