"""What the step would take if something were different: replays of the graph with other work (see ``graph``).

Removing waits gains nothing, since the late rank's own work must shrink. The replay that counts *equalises*: each
segment of a rank's work between two matched calls gets the length it has on the median of the ranks that do the same
calls, whether that is shorter or longer. A host that is evenly slower in every segment is a property of the machine,
not a fault of a place; it is discounted up to ``UNIFORM_LIMIT`` and reported apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.replay.graph import Graph, Work
from rankscope.analysis.replay.segments import Plan

__all__ = ["UNIFORM_LIMIT", "Replay", "Segments", "prepare", "segment_work", "step_ends"]

F64 = NDArray[np.float64]

UNIFORM_LIMIT = 1.3
"""Largest even slowness of a host that is discounted. In healthy jobs on one machine up to 1.2 was seen."""


@dataclass(slots=True)
class Segments:
    """Work per rank (R) and segment (S, see ``segments``), ns."""

    host: F64
    device: F64
    count: NDArray[np.int64]
    """Per rank the position after its last call."""


@dataclass(slots=True)
class Replay:
    """A window ready for questions. ``marks`` are the ends of its steps, ns on the aligned axis."""

    graph: Graph
    segments: Segments
    peers: list[list[int]]
    """Per rank the columns of the ranks that make the same sequence of calls."""
    step_calls: list[NDArray[np.int64]]
    """Per recorded step the nodes whose latest is the step's end."""
    begin: float
    unchanged: F64
    """Step ends of the unchanged replay."""
    recorded: F64
    transfers: F64
    """Per recorded step the transfer time of the rank with most of it."""
    error: float
    """Of the unchanged replay: largest relative error of a step's length."""
    _network: F64 | None = None
    """Step ends without transfers: two questions need them."""

    @property
    def steps(self) -> int:
        """Steps that end with a matched call."""
        return len(self.step_calls)

    def marks(self, work: F64 | None) -> F64:
        """Step ends with other work."""
        return self._ends_at(self.graph.replay(work))

    def _ends_at(self, at: F64) -> F64:
        return np.array([at[nodes].max() for nodes in self.step_calls])

    def gains(self, work: F64) -> F64:
        """How much shorter each step becomes, ns; their sum is what the window gains."""
        return self.gains_at(self.graph.replay(work))

    def gains_at(self, at: F64) -> F64:
        """The same for times of all nodes."""
        return np.diff(self.unchanged - self._ends_at(at), prepend=0.0)

    def equalised(self, column: int, *, host: bool = True, device: bool = True, discount: bool = True) -> F64:
        """Work per edge with one rank's segments at their peers' median."""
        factor = np.ones((4, self.segments.host.shape[1]))
        peers = [p for p in self.peers[column] if p != column]
        if peers:
            if host:
                even = self.uniform(column)
                ratio = even if discount and even <= UNIFORM_LIMIT else 1.0
                target = np.median(self.segments.host[peers], axis=0) * ratio
                factor[Work.HOST] = _ratio(target, self.segments.host[column])
            if device:
                target = np.median(self.segments.device[peers], axis=0)
                factor[Work.DEVICE] = _ratio(target, self.segments.device[column])
        return self.scaled(column, factor)

    def uniform(self, column: int, named: F64 | None = None) -> float:
        """Even slowness of the rank's host against its peers: median ratio of its segments, at least 1.

        ``named`` is work per segment with a cause of its own (waiting for input, say), which is not slowness: with two
        calls a step, half of all segments can hold it.
        """
        peers = [p for p in self.peers[column] if p != column]
        if not peers:
            return 1.0
        own, other = self.segments.host[column], np.median(self.segments.host[peers], axis=0)
        if named is not None:
            own = np.maximum(own - named, 0.0)
        real = (own > 0) & (other > 0)
        real &= np.arange(len(own)) < self.segments.count[column]
        if not real.any():
            return 1.0
        return max(float(np.median(own[real] / other[real])), 1.0)

    def scaled(self, column: int, factor: F64, start: F64 | None = None) -> F64:
        """Work per edge (``start``, else as recorded) with one rank's work times ``factor[label, segment]``."""
        graph = self.graph
        mine = np.flatnonzero(graph.owner == column)
        mine = mine[one_of(graph.label[mine], (Work.HOST, Work.DEVICE))]
        work: F64 = (graph.work if start is None else start).copy()
        work[mine] *= factor[graph.label[mine], graph.segment[mine]]
        return work

    def hosts_scaled(self, factor: F64) -> F64:
        """Work per edge with the host work of all ranks times ``factor`` (R x S)."""
        graph = self.graph
        mine = np.flatnonzero(graph.label == Work.HOST)
        work: F64 = graph.work.copy()
        work[mine] *= factor[graph.owner[mine], graph.segment[mine]]
        return work

    def balanced(self) -> F64:
        """Work per edge with each segment of device work shared out evenly among the ranks that do it."""
        graph, device = self.graph, self.segments.device
        factor = np.ones(device.shape)
        for team in {tuple(p): p for p in self.peers if len(p) > 1}.values():
            factor[team] = _ratio(np.broadcast_to(device[team].mean(axis=0), device[team].shape), device[team])
        mine = np.flatnonzero(graph.label == Work.DEVICE)
        work: F64 = graph.work.copy()
        work[mine] *= factor[graph.owner[mine], graph.segment[mine]]
        return work

    def ideal_network(self) -> F64:
        """How much shorter each step becomes, ns, with transfers that take no time."""
        return np.diff(self.unchanged - self._without_transfers(), prepend=0.0)

    def _without_transfers(self) -> F64:
        if self._network is None:
            self._network = self.marks(self.without(Work.TRANSFER))
        return self._network

    def hidden(self) -> F64:
        """How much shorter each step becomes, ns, with transfers wholly behind other work.

        A step then takes as long as without transfers, but no less than the transfers of its busiest rank.
        """
        length = np.diff(self._without_transfers(), prepend=self.begin)
        return np.diff(self.unchanged, prepend=self.begin) - np.maximum(length, self.transfers)

    def without(self, label: Work) -> F64:
        """Work per edge without one kind of work: ``TRANSFER`` is an ideal network, ``HOST`` no host overhead."""
        work: F64 = self.graph.work.copy()
        work[self.graph.label == label] = 0.0
        return work


def _ratio(target: F64, own: F64) -> F64:
    return np.divide(target, own, out=np.ones_like(own), where=own > 0)


def prepare(graph: Graph, matched: Matched, waits: Waits, begin: float, plan: Plan) -> Replay | None:
    """Everything a what-if needs; None when no step ends with a matched call.

    Args:
        graph: of the window.
        matched: its calls.
        waits: the steps of its calls.
        begin: start of the first step on the aligned axis, ns.
        plan: its segments.
    """
    members = waits.common_calls(matched)
    step_calls = [graph.ends[mine].astype(np.int64) for mine in members]
    transfers = [_busiest(matched, waits, mine) for mine in members]
    if not step_calls:
        return None
    recorded = np.array([graph.recorded[nodes].max() for nodes in step_calls])
    at = graph.replay()
    unchanged = np.array([at[nodes].max() for nodes in step_calls])
    length = recorded[-1] - begin
    error = float(np.abs(unchanged - recorded).max() / length) if length > 0 else 1.0
    segments = segment_work(graph, plan)
    return Replay(graph, segments, plan.peers, step_calls, begin, unchanged, recorded, np.array(transfers), error)


def _busiest(matched: Matched, waits: Waits, mine: NDArray[np.int64]) -> float:
    """Transfer time in a step, of which the members of calls are given, of the rank with most of it, ns."""
    return float(np.bincount(matched.column[mine], waits.transfer[mine], len(matched.ranks)).max())


def step_ends(matched: Matched, waits: Waits) -> F64:
    """When the last call of each step that all ranks recorded ended, ns on the aligned axis."""
    return np.array([waits.end[mine].max() for mine in waits.common_calls(matched)])


def segment_work(graph: Graph, plan: Plan) -> Segments:
    """Sum the work between calls."""
    shape = (len(plan.rows), plan.size)
    host, device = np.zeros(shape), np.zeros(shape)
    mine = graph.label == Work.HOST
    np.add.at(host, (graph.owner[mine], graph.segment[mine]), graph.work[mine])
    np.add.at(device, (graph.device_owner, graph.device_segment), graph.device_work)
    count = [s + len(r) for s, r in zip(plan.shift, plan.rows, strict=True)]
    return Segments(host, device, np.array(count, np.int64))
