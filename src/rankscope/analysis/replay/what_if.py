"""Step time under other assumptions, by replays of the graph with other work (see ``graph``).

Removing waits alone gains nothing, because the work of the late rank must shrink. The relevant replay *equalises*: each
segment of a rank's work between two matched calls gets the length of the median over the ranks that make the same
calls, shorter or longer. A host that is uniformly slower in every segment is a property of the machine and not of a
place in the code; it is discounted up to ``UNIFORM_LIMIT`` and reported separately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.replay.graph import Graph, Work
from rankscope.analysis.replay.longest_path import Changed
from rankscope.analysis.replay.segments import Plan
from rankscope.statistics.medians import median_along
from rankscope.statistics.thresholds import UNIFORM_LIMIT

__all__ = ["Replay", "Segments", "gains_of_each", "prepare", "replay_of", "segment_work", "step_ends"]

F64 = NDArray[np.float64]
T = TypeVar("T")


@dataclass(slots=True)
class Segments:
    """Work per rank and segment, shape (R, S), in ns; see ``segments``."""

    host: F64
    device: F64
    count: NDArray[np.int64]
    """Per rank: the position after its last call."""


@dataclass(slots=True)
class Replay:
    """A window prepared for what-if replays. Times in ns of the aligned clock."""

    graph: Graph
    segments: Segments
    peers: list[list[int]]
    """Per rank: columns of the ranks that make the same sequence of calls."""
    step_calls: list[NDArray[np.int64]]
    """Per recorded step that makes calls: nodes of which the latest is the end of the step."""
    begin: float
    unchanged: F64
    """Step ends of the unchanged replay."""
    recorded: F64
    transfers: F64
    """Per recorded step: transfer time of the rank with most of it."""
    spans: NDArray[np.int64]
    """Number of the job's steps up to each of these ends: more than one where steps make no calls, as those do that
    only accumulate gradients."""
    error: float
    """Largest error of a step end in the unchanged replay, relative to the length of all steps."""
    _network: F64 | None = None
    """Step ends without transfers, kept because two assumptions need them."""

    @property
    def steps(self) -> int:
        """Number of steps up to the last end that is replayed."""
        return int(self.spans.sum())

    def marks(self, work: F64 | Changed | None) -> F64:
        """Return the step ends with other work per edge, in ns of the aligned clock."""
        return self._ends_at(self.graph.replay(work))

    def _ends_at(self, at: F64) -> F64:
        return np.array([at[nodes].max() for nodes in self.step_calls])

    def gains(self, work: F64 | Changed) -> F64:
        """Return by how much each step becomes shorter with this work per edge, in ns; the sum is the window's gain.

        Where only the end of several steps is replayed, each of them has the mean.
        """
        return self.gains_at(self.graph.replay(work))

    def gains_at(self, at: F64) -> F64:
        """Return the same for given times of all nodes."""
        return self._of_each_step(np.diff(self.unchanged - self._ends_at(at), prepend=0.0))

    def _of_each_step(self, values: F64) -> F64:
        return np.repeat(values / self.spans, self.spans)

    def equalised(self, column: int, *, host: bool = True, device: bool = True, discount: bool = True) -> Changed:
        """Return the work with one rank's segments at their peers' median, in ns."""
        factor = np.ones((4, self.segments.host.shape[1]))
        peers = [p for p in self.peers[column] if p != column]
        if peers:
            if host:
                even = self.uniform(column)
                ratio = even if discount and even <= UNIFORM_LIMIT else 1.0
                target = median_along(self.segments.host[peers], axis=0)[0] * ratio
                factor[Work.HOST] = _ratio(target, self.segments.host[column])
            if device:
                target = median_along(self.segments.device[peers], axis=0)[0]
                factor[Work.DEVICE] = _ratio(target, self.segments.device[column])
        return self.scaled({column: factor})

    def uniform(self, column: int, named: F64 | None = None) -> float:
        """Uniform slowness of the rank's host against its peers: median ratio of its segments, at least 1.

        ``named`` is the work per segment with a named cause (waiting for input, for instance), in ns. It is no
        slowness, but with two calls a step it can be in half of all segments.
        """
        peers = [p for p in self.peers[column] if p != column]
        if not peers:
            return 1.0
        own, other = self.segments.host[column], median_along(self.segments.host[peers], axis=0)[0]
        if named is not None:
            own = np.maximum(own - named, 0.0)
        real = (own > 0) & (other > 0)
        real &= np.arange(len(own)) < self.segments.count[column]
        if not real.any():
            return 1.0
        return max(float(np.median(own[real] / other[real])), 1.0)

    def scaled(self, factors: Mapping[int, F64]) -> Changed:
        """Return the work with that of some ranks times ``factors[column][label, segment]``."""
        graph = self.graph
        mine = np.flatnonzero(np.logical_or.reduce([graph.owner == column for column in factors])).astype(np.int32)
        mine = mine[one_of(graph.label[mine], (Work.HOST, Work.DEVICE))]
        label, owner, segment, work = graph.label[mine], graph.owner[mine], graph.segment[mine], graph.work[mine]
        for column, factor in factors.items():
            own = owner == column
            work[own] *= factor[label[own], segment[own]]
        return Changed(mine, work)

    def hosts_scaled(self, factor: F64) -> F64:
        """Return the work per edge with the host work of all ranks times ``factor``, shape (R, S)."""
        graph = self.graph
        mine = np.flatnonzero(graph.label == Work.HOST)
        work: F64 = graph.work.copy()
        work[mine] *= factor[graph.owner[mine], graph.segment[mine]]
        return work

    def balanced(self) -> F64:
        """Return the work per edge with each segment of device work distributed evenly among the ranks that do it."""
        graph, device = self.graph, self.segments.device
        factor = np.ones(device.shape)
        for team in {tuple(p): p for p in self.peers if len(p) > 1}.values():
            factor[team] = _ratio(np.broadcast_to(device[team].mean(axis=0), device[team].shape), device[team])
        mine = np.flatnonzero(graph.label == Work.DEVICE)
        work: F64 = graph.work.copy()
        work[mine] *= factor[graph.owner[mine], graph.segment[mine]]
        return work

    def ideal_network(self) -> F64:
        """Return by how much each step becomes shorter if transfers take no time, in ns."""
        return self._of_each_step(np.diff(self.unchanged - self._without_transfers(), prepend=0.0))

    def _without_transfers(self) -> F64:
        if self._network is None:
            self._network = self.marks(self.without(Work.TRANSFER))
        return self._network

    def hidden(self) -> F64:
        """Return by how much each step becomes shorter if transfers are completely hidden by other work, in ns.

        A step then takes as long as without transfers, but no less than the transfers of its busiest rank.
        """
        length = np.diff(self._without_transfers(), prepend=self.begin)
        return self._of_each_step(np.diff(self.unchanged, prepend=self.begin) - np.maximum(length, self.transfers))

    def without(self, label: Work) -> F64:
        """Return the work per edge without one kind: an ideal network (``TRANSFER``), no host overhead (``HOST``)."""
        work: F64 = self.graph.work.copy()
        work[self.graph.label == label] = 0.0
        return work


def gains_of_each(found: Sequence[T], gain: Callable[[Sequence[T]], F64]) -> tuple[F64, list[F64]]:
    """Return the gain per step of mending all of these, and of each with the others mended: of two, one may hide the
    other. ``gain`` is that of mending some of them."""
    together = gain(found)
    if len(found) == 1:
        return together, [together]
    return together, [together - gain([*found[:n], *found[n + 1 :]]) for n in range(len(found))]


def _ratio(target: F64, own: F64) -> F64:
    return np.divide(target, own, out=np.ones_like(own), where=own > 0)


def prepare(graph: Graph, matched: Matched, waits: Waits, begin: float, plan: Plan) -> Replay | None:
    """Prepare the what-if replays of a window; None when no step ends with a matched call.

    Args:
        graph: the graph of the window.
        matched: its calls.
        waits: the steps and transfers of its calls.
        begin: begin of the first step, in ns of the aligned clock.
        plan: its segments.
    """
    members = waits.common_calls(matched)
    if not members:
        return None
    transfers = np.array([_busiest(matched, waits, mine) for mine in members])
    ends = [graph.ends[mine].astype(np.int64) for mine in members]
    number = waits.steps.of_call[matched.call[[mine[0] for mine in members]]]
    spans = np.diff(np.searchsorted(waits.steps.common, number), prepend=-1)
    return replay_of(graph, ends, transfers, spans, begin, plan)


def replay_of(
    graph: Graph,
    step_calls: list[NDArray[np.int64]],
    transfers: F64,
    spans: NDArray[np.int64],
    begin: float,
    plan: Plan,
) -> Replay:
    """Return the replay of steps that end with the latest of these nodes; see :class:`Replay` for the arguments."""
    recorded = np.array([graph.recorded[nodes].max() for nodes in step_calls])
    at = graph.replay()
    unchanged = np.array([at[nodes].max() for nodes in step_calls])
    length = recorded[-1] - begin
    error = float(np.abs(unchanged - recorded).max() / length) if length > 0 else 1.0
    segments = segment_work(graph, plan)
    return Replay(graph, segments, plan.peers, step_calls, begin, unchanged, recorded, transfers, spans, error)


def _busiest(matched: Matched, waits: Waits, mine: NDArray[np.int64]) -> float:
    """Transfer time of the rank with most of it in one step, in ns. ``mine`` are the members of the step's calls."""
    return float(np.bincount(matched.column[mine], waits.transfer[mine], len(matched.ranks)).max())


def step_ends(matched: Matched, waits: Waits) -> F64:
    """End of the last call of each step that all ranks recorded, in ns of the aligned clock."""
    return np.array([waits.end[mine].max() for mine in waits.common_calls(matched)])


def segment_work(graph: Graph, plan: Plan) -> Segments:
    """Sum up the work between calls."""
    shape = (len(plan.times), plan.size)
    host, device = np.zeros(shape), np.zeros(shape)
    mine = graph.label == Work.HOST
    np.add.at(host, (graph.owner[mine], graph.segment[mine]), graph.work[mine])
    np.add.at(device, (graph.device_owner, graph.device_segment), graph.device_work)
    count = [s + len(t) for s, t in zip(plan.shift, plan.times, strict=True)]
    return Segments(host, device, np.array(count, np.int64))
