"""The recorded window as a max-plus graph: when each host call, kernel and collective can start, given the others.

Nodes are points in time. A node happens at the latest ``source + weight`` over its edges. There are:

- *Host points*, one chain per rank (the threads that launch or wait; main and autograd threads alternate): the start of
  each launch and the end of each blocking call. The time between them is host work.
- *Device work*: it starts after its launch, after earlier work of its stream and, behind a wait call, after the last
  work of the other streams. Its duration is device work.
- *Ends of collectives*: the last arrival over all ranks plus the transfer recorded on each rank.

Time that these rules do not explain stays as a constant residual, so that an unchanged replay gives the recorded times.
Nodes launched before the window are fixed. Edges never point backwards in recorded time, so that there are no cycles.
On a CPU-only trace the backend's operators stand for device work, with one stream for each thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.replay.longest_path import Changed, Levels, by_node
from rankscope.trace.scratch import Scratch

__all__ = ["Graph", "Stops", "Work"]

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class Work(IntEnum):
    """Kinds of work that an edge carries, so that it can be scaled."""

    NONE = 0
    HOST = 1
    DEVICE = 2
    TRANSFER = 3


@dataclass(frozen=True, slots=True)
class Stops:
    """Calls in which a host waited for its device; arrays of shape (calls,)."""

    owner: I32
    """Column of the rank."""
    event: I64
    """Row of the call in the rank's events."""
    asked: I32
    """Node at which the call began."""
    done: I32
    """Node at which it returned: after ``asked``, and after the device work that it waited for."""


@dataclass(slots=True)
class Graph:
    """Nodes in an order in which every edge points forward: by time, of many ranks by level (:mod:`longest_path`). The
    edges into node i are ``first[i]:first[i + 1]``."""

    recorded: F64
    """Recorded time of each node, in ns of the aligned clock."""
    fixed: NDArray[np.bool_]
    first: I64
    source: I32
    base: F64
    """Constant part of each edge's weight, in ns."""
    work: F64
    """Part of the weight that is work, in ns, and that assumptions change."""
    label: NDArray[np.int8]
    """A :class:`Work` for each edge."""
    owner: I32
    """Column of the rank whose work the edge carries."""
    segment: I32
    """Position of the segment to which the edge's work belongs; for a transfer, its matched call."""
    device_owner: I32
    """Column, segment and duration (ns) of each piece of device work, once; ``work`` repeats it on every outgoing
    edge."""
    device_segment: I32
    device_work: F64
    ends: I32
    """Node of the end of each matched call on each of its members."""
    starts: I32
    """Node of its start on each of its members."""
    member: I32
    """Column of each of these members."""
    stops: Stops
    """Calls in which hosts waited for their devices."""
    residual_ns: float = 0.0
    """Time by which device work started later than the rules allow, in ns, summed over all of it."""
    dropped: int = 0
    """Number of edges left out because they pointed backwards in time."""

    levels: Levels | None = None
    """Where the nodes are sorted by level."""
    _unchanged: F64 | None = None

    def replay(self, work: F64 | Changed | None = None) -> F64:
        """Return the times of all nodes for the given work per edge, in ns (default: the recorded work).

        Those of the recorded work are computed once, and may not be changed.
        """
        if work is not None:
            return self._replayed(work)
        if self._unchanged is None:
            self._unchanged = Scratch().keep(self._replayed(self.work))
            self._unchanged.flags.writeable = False
        return self._unchanged

    def _replayed(self, work: F64 | Changed) -> F64:
        if self.levels is None:
            whole = work.of_all(self.work) if isinstance(work, Changed) else work
            return by_node(self.first, self.source, self.base + whole, self.recorded, self.fixed)
        if isinstance(work, Changed):
            return self.levels.run(self.base, self.work, self.recorded, work)
        return self.levels.run(self.base, work, self.recorded)

    def transfers(self) -> tuple[I64, I64]:
        """Return the edges that carry transfers, and for each the member of a matched call that ends with it; -1 for
        none."""
        member = np.full(len(self.recorded), -1, np.int64)
        member[self.ends] = np.arange(len(self.ends))
        edges = np.flatnonzero(self.label == Work.TRANSFER)
        return edges, member[np.searchsorted(self.first, edges, side="right") - 1]
