"""A rank with a device as part of the graph: its host chain, then its streams.

The constants were measured on 2 H100 (NCCL 2.28, torch 2.11) and are upper limits: a larger distance is kept as
residual or as work, so a wrong one makes a what-if more cautious, not the unchanged replay wrong.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict

import numpy as np

from rankscope.analysis.callnodes import HOST, START, CallNodes
from rankscope.analysis.categories import Kind
from rankscope.analysis.clocks import Clocks
from rankscope.analysis.graph import Builder, Work
from rankscope.analysis.segments import Plan
from rankscope.analysis.view import RankView, name_mask
from rankscope.trace.columns import Category

__all__ = ["DeviceRank"]

LAUNCH_NS = 10_000.0
"""Least time from the start of a launch call to the start of its work."""
GAP_NS = 12_000.0
"""Least time between two pieces of work of one stream."""
TAIL_NS = 60_000.0
"""A blocking call returns within this of the device work it waited for."""
BLOCKING_NS = 150_000.0
"""A call longer than this may have waited for the device; a shorter one is taken for work."""
NEAR_NS = 15_000.0
"""Without a wait call: work on another stream that ended this shortly before may have been waited for."""

_COMM = int(Kind.COMMUNICATION)
_NONE, _HOST_WORK, _DEVICE = int(Work.NONE), int(Work.HOST), int(Work.DEVICE)


class DeviceRank:
    """One rank with a device: its host chain, then its streams."""

    def __init__(
        self, builder: Builder, window: CallNodes, view: RankView, column: int, clocks: Clocks, plan: Plan
    ) -> None:
        self.builder, self.window, self.view, self.column, self.clocks = builder, window, view, column, clocks
        events = view.trace.events
        self.start = clocks.aligned(column, events.start)
        self.end = clocks.aligned(column, events.end)
        self.gpu = np.flatnonzero(np.isin(view.kind, (Kind.COMPUTE, Kind.COMMUNICATION, Kind.COPY)))
        rows = view.trace.collectives.event
        self.call = {int(rows[row]): call for row, call in window.call_of[column].items()}
        self.launches = clocks.aligned(column, plan.times[column]).tolist()
        self.shift = plan.shift[column]
        launch_at = self.start[np.where(events.launch >= 0, events.launch, 0)]
        # numbers of single events, as lists: the loops below read them a million times
        self.begin, self.finish = self.start.tolist(), self.end.tolist()
        self.launch, self.kind = events.launch.tolist(), view.kind.tolist()
        self.asked = launch_at.tolist()
        self.place = (np.searchsorted(clocks.aligned(column, plan.times[column]), launch_at) + self.shift).tolist()
        """The segment in which each device event was launched."""
        self.host: dict[int, int] = {}
        """Launch event -> host node."""
        self.node: dict[int, int] = {}
        """Device event -> its start node."""

    def segment(self, time: float) -> int:
        """The segment in which ``time`` lies."""
        return bisect_left(self.launches, time) + self.shift

    def add(self) -> None:
        """Nodes first, so that a blocking call may point at device work and the other way round."""
        for event in self.gpu.tolist():
            fixed = self.launch[event] < 0
            if event in self.call:
                self.node[event] = int(self.window.start[self.call[event], self.column])
                if fixed:
                    self.builder.pinned[self.node[event]] = True
                continue
            self.node[event] = self.builder.node(self.begin[event], START, fixed=fixed)
            if self.kind[event] != _COMM and not fixed:
                length = float(self.view.trace.events.duration[event])
                self.builder.device.append((self.column, self.place[event], length))
        self._add_host()
        self._add_starts()

    def _done(self, event: int) -> tuple[int, float, float, int, int, int]:
        """(source, base, work, label, owner, segment) of the end of a device event."""
        if event in self.call:
            return int(self.window.end[self.call[event], self.column]), 0.0, 0.0, _NONE, -1, -1
        duration = self.finish[event] - self.begin[event]
        if self.kind[event] == _COMM or self.launch[event] < 0:
            return self.node[event], duration, 0.0, _NONE, -1, -1
        return self.node[event], 0.0, duration, _DEVICE, self.column, self.place[event]

    def _after(self, target: int, event: int, distance: float) -> None:
        source, base, work, label, owner, segment = self._done(event)
        self.builder.edge(target, source, base + distance, work, label, owner, segment)

    def _add_host(self) -> None:
        view, events, builder = self.view, self.view.trace.events, self.builder
        launching = np.zeros(len(events), np.bool_)
        launching[events.launch[events.launch >= 0]] = True
        runtime = np.isin(events.category, (Category.CUDA_RUNTIME, Category.CUDA_DRIVER)) & view.chain
        calls = np.flatnonzero((runtime | launching) & (launching | (events.duration > BLOCKING_NS)))
        by_end = self.gpu[np.argsort(self.end[self.gpu], kind="stable")]
        ends = self.end[by_end].tolist()
        # without operators nothing shows that the host worked while the device had run dry: then it waited for it
        silent = not bool((view.chain & (events.category == Category.CPU_OP)).any())
        free = float(self.clocks.aligned(self.column, np.array([view.start]))[0])
        if len(calls):
            free = min(free, float(self.start[calls[0]]))
        previous = builder.node(free, HOST, fixed=True)
        for call in calls.tolist():
            begin, finish = self.begin[call], self.finish[call]
            if begin < free:
                self.host[call] = previous  # nested in a blocking call: launched with it
                continue
            node = builder.node(begin, HOST)
            drained = bisect_right(ends, begin) - 1 if silent else -1
            if drained >= 0 and ends[drained] > free and not self._running(begin):
                builder.edge(node, previous, min(begin - free, LAUNCH_NS))
                self._after(node, int(by_end[drained]), begin - ends[drained])
            else:
                builder.edge(node, previous, 0.0, begin - free, _HOST_WORK, self.column, self.segment(begin))
            self.host[call], previous, free = node, node, begin
            if finish - begin <= BLOCKING_NS:
                continue
            last = bisect_right(ends, finish) - 1
            if last < 0 or finish - ends[last] > TAIL_NS or ends[last] <= begin:
                continue
            done = builder.node(finish, HOST)
            builder.edge(done, node, min(finish - begin, LAUNCH_NS))
            self._after(done, int(by_end[last]), finish - ends[last])
            previous, free = done, finish

    def _running(self, time: float) -> bool:
        return bool(((self.start[self.gpu] <= time) & (self.end[self.gpu] > time)).any())

    def _add_starts(self) -> None:
        events, builder = self.view.trace.events, self.builder
        waits = np.flatnonzero(self.view.chain & name_mask(self.view.trace, lambda n: "StreamWaitEvent" in n))
        wait_times = np.sort(self.start[waits])
        waits_before = np.searchsorted(wait_times, self.start[np.where(events.launch >= 0, events.launch, 0)]).tolist()
        streams = events.stream.tolist()
        launched = self.gpu[events.launch[self.gpu] >= 0]
        order = launched[np.argsort(self.start[events.launch[launched]], kind="stable")]
        backlog = self.gpu[events.launch[self.gpu] < 0]
        ran: dict[int, tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
        for event in backlog.tolist():
            _push(ran[streams[event]], self.finish[event], event)
        seen_waits: dict[int, int] = {}
        for event in order.tolist():
            stream, begin, asked = streams[event], self.begin[event], self.asked[event]
            launch = self.launch[event]
            found: list[tuple[float, int, float]] = []  # (time it allows, device event or -1, distance)
            distance = min(begin - asked, LAUNCH_NS)
            found.append((asked + distance, -1, distance))
            waited = waits_before[event] > seen_waits.get(stream, 0)
            for other, (ends, which) in ran.items():
                place = bisect_right(ends, begin) - 1
                if place < 0:
                    continue
                before, gap = which[place], begin - ends[place]
                if not (other == stream or waited or gap <= NEAR_NS):
                    continue
                found.append((begin - gap + min(gap, GAP_NS), before, min(gap, GAP_NS)))
            rest = begin - max(f[0] for f in found)
            builder.residual += rest
            for _, before, distance in found:
                if before < 0:
                    builder.edge(self.node[event], self.host[launch], distance + rest)
                else:
                    self._after(self.node[event], before, distance + rest)
            _push(ran[stream], self.finish[event], event)
            seen_waits[stream] = waits_before[event]


def _push(ran: tuple[list[float], list[int]], end: float, event: int) -> None:
    """Note work of a stream in order of its end: nearly always last."""
    ends, which = ran
    if not ends or end >= ends[-1]:
        ends.append(end)
        which.append(event)
        return
    place = bisect_right(ends, end)
    ends.insert(place, end)
    which.insert(place, event)
