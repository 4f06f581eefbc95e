"""The matched calls of a window: what they move, how long that takes, and which of them could be one call."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import bus_bytes, element_bytes
from rankscope.analysis.matching.communicators import Communicator
from rankscope.analysis.rank import intervals
from rankscope.analysis.tables.collective_costs import sizes_of_calls
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.analysis.windows.result import once_per_window

__all__ = ["SameCalls", "beside_compute", "same_calls"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SameCalls:
    """The calls of one group and kind whose sizes are known; arrays have one value for each of them."""

    group: Communicator
    kind: str
    call: I64
    """Number of the matched call."""
    moved: F64
    """Bytes on the bus, as NCCL's tests count them."""
    size: F64
    """Bytes of the message."""
    transfer: F64
    """From the last arrival to the end, mean over the ranks, ns; more than 0."""

    def some(self, kept: NDArray[np.bool_]) -> SameCalls:
        """Return some of these calls."""
        return SameCalls(self.group, self.kind, self.call[kept], self.moved[kept], self.size[kept], self.transfer[kept])


@once_per_window
def same_calls(window: WindowResult) -> list[SameCalls]:
    """Return the collectives of recorded steps by group and kind, largest sum of transfers first."""
    matched, waits = window.matched, window.waits
    if not len(matched):
        return []
    inputs, outputs, dtypes = sizes_of_calls(window)
    unit = np.array([element_bytes(dtype) or 0 for dtype in dtypes], np.float64)
    transfer = np.add.reduceat(waits.transfer, matched.first[:-1]) / matched.size
    usable = (inputs >= 0) & (outputs >= 0) & (unit > 0) & (transfer > 0) & ~waits.early
    usable &= np.isin(waits.steps.of_call, waits.steps.common)
    by_key: dict[tuple[int, str], list[int]] = defaultdict(list)
    for call in np.flatnonzero(usable).tolist():
        by_key[int(matched.channel[call]), matched.kind[call]].append(call)
    found = []
    for (channel, kind), members in by_key.items():
        group, call = matched.channels[channel], np.array(members, np.int64)
        moved = bus_bytes(kind, len(group.ranks), inputs[call] * unit[call], outputs[call] * unit[call])
        if moved is not None:
            size = np.maximum(inputs[call], outputs[call]) * unit[call]
            found.append(SameCalls(group, kind, call, moved, size, transfer[call]))
    return sorted(found, key=lambda calls: -float(calls.transfer.sum()))


def beside_compute(window: WindowResult, calls: I64) -> F64:
    """Return the largest share of each call, over its ranks, during which the rank computes."""
    matched = window.matched
    share = np.zeros(len(matched))
    for column, view in enumerate(window.views):
        members = matched.of(column)
        members = members[np.isin(matched.call[members], calls)]
        event = view.trace.collectives.event[matched.row[members]]
        start, end = view.trace.events.start[event], view.trace.events.end[event]
        covered = intervals.cover(view.compute, start, end) / np.maximum(end - start, 1)
        np.maximum.at(share, matched.call[members], covered)
    return share[calls]
