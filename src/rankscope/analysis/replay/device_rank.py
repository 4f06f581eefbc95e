"""A rank with a device as part of the graph: its host chain, and its streams.

The constants were measured on 2 H100 (NCCL 2.28, torch 2.11) and are upper limits. A longer time is kept as residual or
as work. A wrong constant thus makes the gain of an assumption too small, but does not affect the unchanged replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.view import RankView, name_mask
from rankscope.analysis.replay.builder import Builder
from rankscope.analysis.replay.collective_nodes import END, HOST, START, CallNodes
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.segments import Plan
from rankscope.analysis.replay.streams import last_before, previous_of_unlaunched, without_rounding
from rankscope.analysis.replay.unawaited_sends import compute_stream, send_events, until
from rankscope.trace.columns import Category
from rankscope.trace.names import DEVICE_WORK, Kind

__all__ = ["DeviceRank", "least_gaps"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
Numbers = I64 | I32
Mask = NDArray[np.bool_]

LAUNCH_NS = 10_000.0
"""Largest time from the start of a launch call to the start of its work that is taken as latency, in ns."""
GAP_NS = 12_000.0
"""Largest time between two pieces of work of one stream that is taken as the device's gap, in ns."""
ENOUGH = 16
"""Number of gaps between pieces that were launched in time from which their median is used as the least gap."""
TAIL_NS = 60_000.0
"""Largest time from the end of device work to the return of the blocking call that waited for it, in ns."""
BLOCKING_NS = 150_000.0
"""Least duration of a call that may have waited for the device, in ns. Shorter calls are taken as work."""
NEAR_NS = 15_000.0
"""On a rank that records no wait calls, work of another stream may have been waited for if it ended at most this long
before, in ns."""


_KEPT = (Kind.COMMUNICATION, Kind.FUSED)
"""Kinds whose unmatched events keep their length under every assumption, since their share of waiting is unknown."""


class DeviceRank:
    """One rank with a device. *Pieces* are its device events; arrays of pieces are in order of start."""

    def __init__(
        self,
        builder: Builder,
        calls: CallNodes,
        view: RankView,
        column: int,
        clocks: Clocks,
        plan: Plan,
        from_time: float = -np.inf,
        *,
        overtake: bool = False,
    ) -> None:
        """Add the rank's nodes. What was launched before ``from_time`` (aligned clock, ns) keeps its recorded times.

        ``overtake``: compute does not wait for the send that was launched last (:mod:`unawaited_sends`).
        """
        self.builder, self.view, self.column, self.from_time = builder, view, column, from_time
        events = view.trace.events
        gpu = np.flatnonzero(one_of(view.kind, DEVICE_WORK))
        self.sends = np.isin(gpu, send_events(view)) if overtake else np.zeros(len(gpu), np.bool_)
        self.launch, self.stream, self.step = events.launch[gpu], events.stream[gpu], events.step[gpu]
        self.launched = self.launch >= 0
        self.clocks = clocks
        self.begin = self.aligned(events.start[gpu])
        self.end = without_rounding(self.begin, self.aligned(events.end[gpu]), self.stream)
        self.asked = self.aligned(events.start[np.where(self.launched, self.launch, 0)])
        self.bounds, self.shift = clocks.aligned(column, plan.times[column]), plan.shift[column]
        self.opened = float(self.aligned(np.array([view.start]))[0])
        member = np.full(len(events), -1, np.int64)
        member[view.trace.collectives.event] = calls.member_of(view, column)
        self._nodes(calls, member[gpu], one_of(view.kind[gpu], _KEPT), events.duration[gpu].astype(np.float64))

    def aligned(self, times: I64) -> F64:
        """Convert times of the rank's own clock to the aligned one, in ns."""
        return self.clocks.aligned(self.column, times)

    def _nodes(self, calls: CallNodes, member: I64, comm: Mask, duration: F64) -> None:
        """Add the start node of each piece, and express its end as ``source + base + work``."""
        matched, own = member >= 0, member < 0
        self.node = np.empty(len(member), np.int32)
        self.node[matched] = calls.start[member[matched]]
        self.unlaunched, self.previous = previous_of_unlaunched(self.begin, self.end, self.stream, self.launched)
        fixed = ~self.launched
        fixed[self.unlaunched] = False
        self.builder.pin(self.node[matched & fixed])
        self.node[own] = self.builder.nodes(self.begin[own], START, fixed=fixed[own])
        self.builder.pin(self.node[self.launched & (self.asked < self.from_time)])
        working = own & ~comm & self.launched
        place = self.segment(self.asked)
        self.builder.device(self.column, place[working], duration[working])
        self.source = self.node.copy()
        self.source[matched] = calls.end[member[matched]]
        length = self.end - self.begin
        self.base, self.work = np.where(own & ~working, length, 0.0), np.where(working, length, 0.0)
        self.label = np.where(working, np.int8(Work.DEVICE), np.int8(Work.NONE))
        self.owner = np.where(working, np.int32(self.column), np.int32(-1))
        self.place = np.where(working, place, -1).astype(np.int32)

        self._add_lost(calls)
        self._reach()
        # These exist for all ranks before the first edge is added.
        for name in ("launch", "launched", "stream", "step", "begin", "end", "asked", "bounds", "mine",
                     "node", "source", "base", "work", "label", "owner", "place"):  # fmt: skip
            setattr(self, name, self.builder.keep(getattr(self, name)))

    def _add_lost(self, calls: CallNodes) -> None:
        """Add calls without a record of this rank: no pieces to start, but later pieces and the host may wait for their
        end."""
        lost = calls.lost_by(self.column)
        if not len(lost.node):
            return
        count = len(lost.node)
        events = self.view.trace.events
        stream = events.stream[self.view.trace.collectives.event[lost.row]]
        self.launch = np.append(self.launch, np.full(count, -1, np.int32))
        self.launched = np.append(self.launched, np.zeros(count, np.bool_))
        self.stream = np.append(self.stream, stream)
        self.begin = np.append(self.begin, lost.time)
        self.asked = np.append(self.asked, lost.time)
        self.end = np.append(self.end, lost.time)
        node = lost.node.astype(np.int32)
        self.node, self.source = np.append(self.node, node), np.append(self.source, node)
        self.base, self.work = np.append(self.base, np.zeros(count)), np.append(self.work, np.zeros(count))
        self.label = np.append(self.label, np.full(count, Work.NONE, np.int8))
        self.owner = np.append(self.owner, np.full(count, -1, np.int32))
        self.place = np.append(self.place, np.full(count, -1, np.int32))

    def segment(self, times: F64) -> I64:
        """Return the segments that contain ``times`` (ns, aligned clock)."""
        return np.searchsorted(self.bounds, times) + self.shift

    def _after(self, target: Numbers, piece: Numbers, distance: F64) -> None:
        """Add edges: each ``target`` happens no earlier than ``distance`` (ns) after the end of a piece."""
        base = self.base[piece] + distance
        carried = self.work[piece], self.label[piece], self.owner[piece], self.place[piece]
        self.builder.edges(target, self.source[piece], base, *carried)

    def add(self, least: F64) -> None:
        """Add the edges of the rank. ``least`` is the result of :func:`least_gaps`."""
        self._add_starts(self._add_host(), least)

    def add_step_ends(self) -> I64:
        """Add a node for the end of each recorded step, the latest end of its work, and return these nodes."""
        pieces = np.flatnonzero(self.step >= 0)
        steps, place = np.unique(self.step[pieces], return_inverse=True)
        last = np.full(len(steps), -np.inf)
        np.maximum.at(last, place, self.end[pieces])
        nodes = self.builder.nodes(last, END)
        self._after(nodes[place], pieces, np.zeros(len(pieces)))
        return nodes

    def _add_host(self) -> I64:
        """Add the host chain and return the node of each launching event."""
        view, events, builder = self.view, self.view.trace.events, self.builder
        launching = events.launching
        runtime = one_of(events.category, (Category.CUDA_RUNTIME, Category.CUDA_DRIVER)) & view.chain
        calls = np.flatnonzero((runtime | launching) & (launching | (events.duration > BLOCKING_NS)))
        begin, finish = self.aligned(events.start[calls]), self.aligned(events.end[calls])
        by_end = np.argsort(self.end, kind="stable")
        ends = self.end[by_end]
        last = np.searchsorted(ends, finish, side="right") - 1
        ended = ends[last] if len(ends) else np.full(len(calls), -np.inf)
        blocks = (finish - begin > BLOCKING_NS) & (last >= 0) & (finish - ended <= TAIL_NS) & (ended > begin)
        blocking, nested = _nested(begin, finish, np.flatnonzero(blocks))
        kept = np.flatnonzero(nested < 0)
        blocks = np.isin(kept, blocking)
        first = min([self.opened, *begin[:1].tolist()])
        opened = builder.nodes(first, HOST, fixed=True)
        node, done = builder.nodes(begin[kept], HOST), builder.nodes(finish[kept[blocks]], HOST)
        builder.pin(node[begin[kept] < self.from_time])
        builder.pin(done[begin[kept[blocks]] < self.from_time])
        goes_on, free = node.copy(), begin[kept]
        goes_on[blocks], free[blocks] = done, finish[kept[blocks]]
        previous, free = np.concatenate((opened, goes_on))[:-1], np.concatenate(([first], free))[:-1]

        at = begin[kept]
        drained = np.searchsorted(ends, at, side="right") - 1
        waited = np.zeros(len(kept), np.bool_)
        # Without operators, host work is not visible: a host that launches after its device became idle is taken to
        # have waited.
        if len(ends) and not bool((view.chain & (events.category == Category.CPU_OP)).any()):
            running = np.searchsorted(np.sort(self.begin), at, side="right") > drained + 1
            waited = (drained >= 0) & (ends[drained] > free) & ~running
        awaited, silent = self._awaited(at, free)
        waited &= awaited < 0
        works = ~waited & (awaited < 0)
        builder.edges(
            node[works], previous[works], 0.0, (at - free)[works], Work.HOST, self.column, self.segment(at[works])
        )
        stopped = np.flatnonzero(awaited >= 0)
        work = np.maximum(silent - free, 0.0)[stopped]
        builder.edges(node[stopped], previous[stopped], 0.0, work, Work.HOST, self.column, self.segment(at[stopped]))
        self._after(node[stopped], awaited[stopped], at[stopped] - self.end[awaited[stopped]])
        builder.edges(node[waited], previous[waited], np.minimum((at - free)[waited], LAUNCH_NS))
        self._after(node[waited], by_end[drained[waited]], at[waited] - ends[drained[waited]])
        stop = kept[blocks]
        builder.edges(done, node[blocks], np.minimum(finish[stop] - begin[stop], LAUNCH_NS))
        self._after(done, by_end[last[stop]], finish[stop] - ends[last[stop]])
        builder.stops(self.column, calls[stop], node[blocks], done)

        host = np.full(len(events), -1, np.int64)
        host[calls[kept]] = node
        inside = np.flatnonzero(nested >= 0)  # launched within the blocking call
        host[calls[inside]] = done[np.searchsorted(blocking, nested[inside])]
        return host

    def _awaited(self, at: F64, free: F64) -> tuple[I64, F64]:
        """Find the calls of the host before which its thread waited for a piece of work on the host.

        A thread is taken to have waited for a piece that ended during the thread's silence, closer to its end than to
        its begin.

        Args:
            at: begin of each call, in ns of the aligned clock.
            free: end of the previous call, at which the host was free.

        Returns:
            For each call the piece waited for, -1 for none; and the time at which the thread's silence began.
        """
        view, events = self.view, self.view.trace.events
        piece, silent = np.full(len(at), -1, np.int64), np.zeros(len(at))
        busy = view.chain & one_of(events.category, (Category.CPU_OP, Category.CUDA_RUNTIME, Category.CUDA_DRIVER))
        rows = np.flatnonzero(busy)
        begun, ended = self.aligned(events.start[rows]), np.maximum.accumulate(self.aligned(events.end[rows]))
        on_host = np.flatnonzero(self.launched & (self.stream < 0))
        for own in on_host[np.argsort(self.end[on_host], kind="stable")].tolist():
            end = float(self.end[own])
            before, call = int(np.searchsorted(begun, end)) - 1, int(np.searchsorted(at, end))
            if before < 0 or before + 1 >= len(rows) or call >= len(at) or free[call] > end:
                continue
            since, until = float(ended[before]), float(begun[before + 1])
            if since < end and until - end <= end - since:
                piece[call], silent[call] = own, since
        return piece, silent

    def _reach(self) -> None:
        """Determine what each launched piece may wait for: the last work of its own stream and of certain others."""
        waits = np.flatnonzero(self.view.chain & name_mask(self.view.trace, lambda n: "StreamWaitEvent" in n))
        waits_before = np.searchsorted(np.sort(self.aligned(self.view.trace.events.start[waits])), self.asked)
        mine = np.flatnonzero(self.launched)
        mine = mine[np.argsort(self.asked[mine], kind="stable")]
        turn = np.full(len(self.begin), -1, np.int64)
        turn[mine] = np.arange(len(mine))
        streams, waited = self.stream[mine], np.zeros(len(mine), np.bool_)
        for stream in np.unique(streams).tolist():
            at = np.flatnonzero(streams == stream)
            waited[at] = np.diff(waits_before[mine[at]], prepend=0) > 0
        begin, asked = self.begin[mine], self.asked[mine]
        reached: list[_Reached] = []
        overtaking = streams == compute_stream(self.view) if self.sends.any() else np.zeros(len(mine), np.bool_)
        for stream in np.unique(self.stream).tolist():
            pieces = np.flatnonzero(self.stream == stream)
            before = last_before(pieces, self.end, turn, begin, until(pieces, turn, overtaking, self.sends))
            gap = begin - self.end[before]
            near = (gap <= NEAR_NS) if not len(waits) else np.zeros(len(gap), np.bool_)
            taken = np.flatnonzero((before >= 0) & ((streams == stream) | waited | near))
            before, gap = before[taken], gap[taken]
            queued = asked[taken] + LAUNCH_NS < self.end[before]
            same = (streams[taken] == stream).astype(np.int8)
            columns = taken.astype(np.int32), before.astype(np.int32), gap, queued, same
            reached.append(_Reached(*map(self.builder.keep, columns)))
        self.mine, self.reached = mine.astype(np.int32), reached

    def queued_gaps(self) -> tuple[F64, F64]:
        """Gaps (ns) between the end of awaited work and the begin of pieces launched before that end: after work of
        another stream, and after work of the own stream."""
        decided = self._decided()
        other, own = (
            np.concatenate(
                [np.empty(0), *(r.gap[d & (r.same == s)] for r, d in zip(self.reached, decided, strict=True))]
            )
            for s in (0, 1)
        )
        return other, own

    def _decided(self) -> list[Mask]:
        """For each entry of ``reached`` whether the piece waits for no later end, and was launched before this one."""
        last = np.full(len(self.mine), np.inf)
        for r in self.reached:
            last[r.piece] = np.minimum(last[r.piece], r.gap)
        return [r.queued & (r.gap == last[r.piece]) for r in self.reached]

    def _add_starts(self, host: I64, least: F64) -> None:
        gone, previous = self.unlaunched, self.previous
        self._after(self.node[gone], previous, self.begin[gone] - self.end[previous])
        mine = self.mine
        begin, asked = self.begin[mine], self.asked[mine]
        distance = np.minimum(begin - asked, LAUNCH_NS)
        allowed = asked + distance
        # If a piece was launched before the last end that it waits for, the gap to that end is the device's. Other
        # gaps come from waiting for the host or for other work. If these were earlier, they would be the usual gap.
        near = [
            np.minimum(r.gap, np.where(decided, GAP_NS, least[r.same]))
            for r, decided in zip(self.reached, self._decided(), strict=True)
        ]
        for r, kept in zip(self.reached, near, strict=True):
            allowed[r.piece] = np.maximum(allowed[r.piece], begin[r.piece] - r.gap + kept)
        rest = begin - allowed
        self.builder.residual += float(rest.sum())
        self.builder.edges(self.node[mine], host[self.launch[mine]], distance + rest)
        for r, kept in zip(self.reached, near, strict=True):
            self._after(self.node[mine[r.piece]], r.before, kept + rest[r.piece])


@dataclass(frozen=True, slots=True)
class _Reached:
    """Pieces that may wait for the work of one stream; arrays of one length."""

    piece: I32
    """Index among the launched pieces, in order of launch."""
    before: I32
    """The piece that it may wait for."""
    gap: F64
    """Time from the end of that piece to its own begin, in ns."""
    queued: Mask
    """Whether it had been launched before that end."""
    same: NDArray[np.int8]
    """1 if both are on one stream, else 0."""


def least_gaps(ranks: Sequence[DeviceRank]) -> F64:
    """Usual gap between two pieces of work that were launched in time, in ns: on two streams, and on one.

    It is computed over all ranks, because a device that waits for each of its launches shows no such gap itself.
    """
    gaps = [rank.queued_gaps() for rank in ranks]
    seen = [np.concatenate([np.empty(0), *(g[same] for g in gaps)]) for same in (0, 1)]
    return np.array([min(float(np.median(s)), GAP_NS) if len(s) >= ENOUGH else GAP_NS for s in seen])


def _nested(begin: F64, finish: F64, blocking: I64) -> tuple[I64, I64]:
    """Return the blocking calls that are within no other, and for each call the one that contains it, -1 for none."""
    outer: list[int] = []
    free = -np.inf
    for call in blocking.tolist():
        if begin[call] >= free:
            outer.append(call)
            free = float(finish[call])
    kept = np.array(outer, np.int64)
    if not len(kept):
        return kept, np.full(len(begin), -1, np.int64)
    before = np.searchsorted(kept, np.arange(len(begin))) - 1
    inside = (before >= 0) & (finish[kept[before]] > begin)
    return kept, np.where(inside, kept[before], -1)
