"""Reasons why a rank's device (without one: its training thread) does not compute; for terms see
``records.rows.RankIdle``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.accounting.usage import DeviceTime
from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.intervals import Spans

__all__ = ["IdleTime", "idle_time"]


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Durations over the recorded window, ns. Together with compute and kernels that do both they add up to the
    window."""

    waiting: int
    transfer: int
    inputs: int
    host: int
    copy: int
    step_inputs: NDArray[np.int64]
    """The part of ``inputs`` in each recorded step."""
    step_waiting: NDArray[np.int64]
    """The part of ``waiting`` in each recorded step."""


def idle_time(devices: Sequence[DeviceTime], column: int, matched: Matched, waits: Waits, bounds: Spans) -> IdleTime:
    """Split the time without compute into waiting for peers, transfer, copies, the data loader, and other host reasons.

    A call that was not matched counts as transfer, since the arrivals of the others are unknown. ``bounds``: those of
    the steps (``step_bounds``). With several devices, the mean over devices.
    """
    parts = [_of_device(device, column, matched, waits, bounds) for device in devices]
    if len(parts) == 1:
        return parts[0]
    names = ("waiting", "transfer", "inputs", "host", "copy")
    means = {name: round(sum(getattr(p, name) for p in parts) / len(parts)) for name in names}
    by_step = {
        name: np.mean([getattr(p, name) for p in parts], axis=0).astype(np.int64)
        for name in ("step_inputs", "step_waiting")
    }
    return IdleTime(**means, **by_step)


def _of_device(device: DeviceTime, column: int, matched: Matched, waits: Waits, bounds: Spans) -> IdleTime:
    view, used, mine = device.view, device.usage, matched.of(column)
    events = view.trace.collectives.event[matched.row[mine]]
    start = view.trace.events.start[events]
    until = start + np.round(waits.wait[mine]).astype(np.int64)
    waits_for_peers = intervals.intersect(device.exposed, intervals.union(start, until))
    waiting = intervals.measure(waits_for_peers)
    fetching = intervals.clip(view.fetch, view.free, view.end)
    for busy in (view.compute, view.fused, view.comm, view.copy):
        fetching = intervals.subtract(fetching, busy)
    inputs = intervals.measure(fetching)
    return IdleTime(
        waiting=waiting,
        transfer=used.exposed_comm - waiting,
        inputs=inputs,
        host=used.idle - inputs,
        copy=used.exposed_copy,
        step_inputs=intervals.cover(fetching, *bounds),
        step_waiting=intervals.cover(waits_for_peers, *bounds),
    )
