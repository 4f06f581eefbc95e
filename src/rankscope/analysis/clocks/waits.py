"""Arrival, wait and transfer of every matched call, in ns of the aligned clock since its origin.

``wait`` extends from a rank's own arrival to the last arrival among the ranks it waits for, ``transfer`` from there to
the end of its part. Waiting is not cost: only a replay shows what lateness costs (``replay.what_if``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.clocks.steps import NONE, JobSteps, find_steps
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView
from rankscope.statistics.medians import median_of_others

__all__ = ["Waits", "bus_bytes", "element_bytes", "lateness", "measure_waits"]

F64 = NDArray[np.float64]


@dataclass(slots=True)
class Waits:
    """Times of the matched calls; one value for each member unless stated otherwise."""

    arrival: F64
    end: F64
    wait: F64
    transfer: F64
    step: NDArray[np.int32]
    """Index of the launching step on the member's own rank, -1 where unknown. Numbers common to all ranks are in
    ``steps``."""
    last: NDArray[np.int32]
    """Per call: column of the rank that arrived last."""
    early: NDArray[np.bool_]
    """Per call: whether some member was not recorded yet when the first one arrived. Recording starts at a different
    time on each rank, so that such a wait is no property of the job. It is left out of sums; the end still serves clock
    alignment."""
    steps: JobSteps
    """The job's steps, and the step of each call."""

    def common_calls(self, matched: Matched) -> list[NDArray[np.int64]]:
        """Return the members of the calls of each step that all ranks recorded, in order of steps. Steps without calls
        are left out."""
        number = self.steps.of_call[matched.call]
        place = np.searchsorted(self.steps.common, number)
        members = np.flatnonzero(np.append(self.steps.common, NONE)[place] == number)
        members = members[number[members] != NONE]
        members = members[np.argsort(place[members], kind="stable")]
        cuts = np.flatnonzero(np.diff(place[members])) + 1
        return [part for part in np.split(members, cuts) if len(part)]


def measure_waits(views: Sequence[RankView], matched: Matched, clocks: Clocks) -> Waits:
    """Measure waits and transfers of one window."""
    steps = find_steps(views, matched)
    members = len(matched.call)
    arrival, end, step = np.empty(members), np.empty(members), np.empty(members, np.int32)
    for column, view in enumerate(views):
        mine, events = matched.of(column), view.trace.events
        event = view.trace.collectives.event[matched.row[mine]]
        start = events.start[event]
        arrival[mine] = clocks.aligned(column, start)
        end[mine] = clocks.aligned(column, start + events.duration[event])
        step[mine] = events.step[event]
    if not len(matched):
        return Waits(arrival, end, arrival, arrival, step, np.empty(0, np.int32), np.empty(0, np.bool_), steps)
    first, call = matched.first[:-1], matched.call
    latest = np.maximum.reduceat(arrival, first)
    arrived_last = np.flatnonzero(arrival == latest[call])
    last = matched.column[arrived_last[np.searchsorted(arrived_last, first)]]
    begun = np.array([_recorded_from(view, clocks, column) for column, view in enumerate(views)])[matched.column]
    early = np.maximum.reduceat(begun, first) > np.minimum.reduceat(arrival, first)
    # A clock error may put the last arrival after an end, but no wait is longer than the call itself.
    ended = np.where(matched.partial[call], end, np.minimum.reduceat(end, first)[call])
    latest = np.minimum(matched.last_awaited(arrival), ended)
    wait, transfer = np.maximum(latest - arrival, 0.0), np.maximum(end - latest, 0.0)
    return Waits(arrival, end, wait, transfer, step, last.astype(np.int32), early, steps)


def lateness(matched: Matched, waits: Waits) -> F64:
    """Time by which each member arrived after the median of the other members of its call, in ns."""
    out = np.empty(len(waits.arrival))
    for members in matched.by_size():
        out[members] = waits.arrival[members] - median_of_others(waits.arrival[members])
    return out


def _recorded_from(view: RankView, clocks: Clocks, column: int) -> float:
    """Time of the first event or step mark of a rank on the aligned clock, in ns."""
    events, steps = view.trace.events, view.trace.steps
    signs = [*events.start[:1].tolist(), *steps.start[:1].tolist()]
    return float(clocks.aligned(column, np.array([min(signs)], np.int64))[0]) if signs else -np.inf


def element_bytes(dtype: str) -> int | None:
    """Size of one element in bytes, by Kineto's name of the type; None where unknown."""
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


def bus_bytes(kind: str, size: int, inputs: F64, outputs: F64) -> F64 | None:
    """Bytes that calls move over the bus, as NCCL tests define them; per transfer time they are the bus bandwidth.

    Args:
        kind: canonical kind.
        size: number of ranks of the group.
        inputs: input size of each call on one rank, in bytes.
        outputs: output size of each call on one rank, in bytes.

    Returns:
        Bytes of each call; None where the kind has no such definition.
    """
    factors = {
        "all_reduce": (2.0 * (size - 1) / size, inputs),
        "all_gather": ((size - 1) / size, outputs),
        "reduce_scatter": ((size - 1) / size, inputs),
        "all_to_all": ((size - 1) / size, inputs),
        "broadcast": (1.0, inputs),
        "reduce": (1.0, inputs),
    }
    if kind not in factors or size < 2:
        return None
    factor, moved = factors[kind]
    return np.asarray(factor * moved)
