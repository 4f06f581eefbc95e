"""Cost of the matched calls of a kind per step: wait, transfer, exposed time, bytes and bus bandwidth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import bus_bytes, element_bytes
from rankscope.analysis.matching.communicators import Communicator
from rankscope.analysis.rank import intervals
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.trace.names import Kind

__all__ = ["Cost", "Key", "call_costs", "exposed_per_call", "sizes_of_calls"]

F64 = NDArray[np.float64]

Key = tuple[str, tuple[int, ...], str, str, str | None]
"""Label, ranks of the group, its name, kind of collective, type."""


@dataclass(slots=True)
class Cost:
    """Calls of one key. Times are in ms per step, means over the group's recorded ranks."""

    calls: float = 0.0
    """Number of calls per step."""
    members: int = 0
    """Number of recorded ranks of the group."""
    wait: float = 0.0
    """Excludes calls in which the recording began on some rank."""
    transfer: float = 0.0
    exposed: float = 0.0
    """Not overlapped by compute; includes waiting."""
    megabytes: list[F64] = field(default_factory=list)
    """Size of each call of known size, 10^6 bytes."""
    rates: list[F64] = field(default_factory=list)
    """Bus bandwidth of each call, 10^9 bytes per second."""

    @property
    def megabytes_per_call(self) -> float | None:
        """Mean of the larger of input and output, 10^6 bytes."""
        return float(np.concatenate(self.megabytes).mean()) if self.megabytes else None

    @property
    def bus_gb_s(self) -> float | None:
        """Median bus bandwidth over the calls."""
        return float(np.median(np.concatenate(self.rates))) if self.rates else None

    def numbers(self) -> dict[str, Any]:
        """Return the values by the names of the report's rows."""
        return {
            "calls_per_step": self.calls,
            "megabytes_per_call": self.megabytes_per_call,
            "wait_ms_per_step": self.wait,
            "transfer_ms_per_step": self.transfer,
            "exposed_ms_per_step": self.exposed,
            "bus_gb_s": self.bus_gb_s,
        }


def call_costs(windows: Sequence[WindowResult], labels: Sequence[list[str]] | None = None) -> dict[Key, Cost]:
    """Pool the windows' calls by key, most exposed first. ``labels``: one per call and window; calls with an empty
    label are left out."""
    found: dict[Key, Cost] = defaultdict(Cost)
    steps = sum(max(w.step_count, 1) for w in windows)
    for number, window in enumerate(windows):
        matched = window.matched
        if not len(matched) or (labels and not any(labels[number])):
            continue
        first, size = matched.first[:-1], matched.size
        wait = np.where(window.waits.early, 0.0, np.add.reduceat(window.waits.wait, first) / size)
        transfer = np.add.reduceat(window.waits.transfer, first) / size
        exposed = exposed_per_call(window)
        inputs, outputs, dtypes = sizes_of_calls(window)
        label = labels[number] if labels else [""] * len(matched)
        for (_, channel, kind, name), members in _by_key(label, matched.channel, matched.kind, dtypes).items():
            if labels and not name:
                continue
            group: Communicator = matched.channels[channel]
            dtype = dtypes[members[0]]
            cost = found[(name, group.ranks, group.name, kind, dtype or None)]
            cost.calls += len(members) / steps
            cost.members = max(cost.members, int(size[members[0]]))
            cost.wait += float(wait[members].sum()) / 1e6 / steps
            cost.transfer += float(transfer[members].sum()) / 1e6 / steps
            cost.exposed += float(exposed[members].sum()) / 1e6 / steps
            known = members[inputs[members] >= 0]
            unit = element_bytes(dtype)
            if unit is None or not len(known):
                continue
            cost.megabytes.append(np.maximum(inputs[known], outputs[known]) * unit / 1e6)
            known = known[transfer[known] > 0]
            moved = bus_bytes(kind, len(group.ranks), inputs[known] * unit, outputs[known] * unit)
            if moved is not None and len(known):
                cost.rates.append(moved / transfer[known])
    return dict(sorted(found.items(), key=lambda item: -item[1].exposed))


def exposed_per_call(window: WindowResult) -> F64:
    """Return the part of each call that compute does not overlap, mean over its ranks, ns. Concurrent calls share their
    time equally."""
    matched, total = window.matched, np.zeros(len(window.matched))
    for column, view in enumerate(window.views):
        members = matched.of(column)
        events, event = view.trace.events, view.trace.collectives.event[matched.row[members]]
        running = np.flatnonzero(view.kind == Kind.COMMUNICATION)
        start = events.start[running]
        edges = np.concatenate((start, start + events.duration[running]))
        change = np.repeat(np.array([1, -1]), len(running))
        order = np.argsort(edges, kind="stable")
        edges, at_once = edges[order], np.maximum(np.cumsum(change[order]), 1)
        spans = intervals.clip(intervals.subtract(view.comm, view.compute), view.free, view.end)
        shares = intervals.cover_between(spans, edges) / at_once[:-1]
        until = np.concatenate(([0.0], np.cumsum(shares)))
        begin, end = np.searchsorted(edges, events.start[event]), np.searchsorted(edges, events.end[event])
        total[matched.call[members]] += until[end] - until[begin]
    return np.asarray(total / matched.size)


def sizes_of_calls(window: WindowResult) -> tuple[F64, F64, list[str]]:
    """Return input and output elements (-1 unknown) and type of each call, as recorded by its first member."""
    matched = window.matched
    column, row = matched.column[matched.first[:-1]], matched.row[matched.first[:-1]]
    inputs, outputs = np.empty(len(row)), np.empty(len(row))
    dtypes = [""] * len(row)
    for number in np.unique(column).tolist():
        calls, members = window.views[number].trace.collectives, np.flatnonzero(column == number)
        inputs[members], outputs[members] = calls.in_elements[row[members]], calls.out_elements[row[members]]
        for call, own in zip(members.tolist(), row[members].tolist(), strict=True):
            dtypes[call] = calls.dtype[own]
    return inputs, outputs, dtypes


def _by_key(
    labels: list[str], channels: NDArray[np.int32], kinds: list[str], dtypes: list[str]
) -> dict[tuple[str, int, str, str], NDArray[np.int64]]:
    found: dict[tuple[str, int, str, str], list[int]] = defaultdict(list)
    for call, key in enumerate(zip(dtypes, channels.tolist(), kinds, labels, strict=True)):
        found[key].append(call)
    return {key: np.array(calls, np.int64) for key, calls in found.items()}
