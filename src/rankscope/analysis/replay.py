"""Build the graph of one window from its ranks' traces (see ``graph`` for what the nodes mean).

The constants were measured on 2 H100 (NCCL 2.28, torch 2.11) and are upper limits: a larger distance is kept as
residual or as work, so a wrong one makes a what-if more cautious, not the unchanged replay wrong.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.categories import Kind
from rankscope.analysis.clocks import Clocks
from rankscope.analysis.collectives import Matched
from rankscope.analysis.graph import Builder, Graph, Work
from rankscope.analysis.host import cpu_issues, cpu_waits
from rankscope.analysis.segments import Plan
from rankscope.analysis.view import RankView, name_mask
from rankscope.analysis.waits import Waits
from rankscope.trace.columns import Category

__all__ = ["build_graph"]

I64 = NDArray[np.int64]

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
ISSUE_NS = 300_000.0
"""CPU backends: least time from issuing a call to its start on the backend's thread."""

_COMM = int(Kind.COMMUNICATION)
_NONE, _HOST_WORK, _DEVICE, _TRANSFER = int(Work.NONE), int(Work.HOST), int(Work.DEVICE), int(Work.TRANSFER)

# order among nodes of the same time: an end frees what starts at that time; the last arrival completes the arrivals
_END, _HOST, _START, _JOINED = 0, 1, 2, 3


class _Window:
    """The nodes all ranks share: arrivals and ends of matched calls."""

    def __init__(self, builder: Builder, matched: Matched, waits: Waits) -> None:
        self.builder = builder
        self.start = np.full(matched.rows.shape, -1, np.int64)
        self.end = np.full(matched.rows.shape, -1, np.int64)
        self.call_of: list[dict[int, int]] = [{} for _ in matched.ranks]
        for call, members in enumerate(matched.rows):
            present = np.flatnonzero(members >= 0).tolist()
            latest = float(np.nanmax(waits.arrival[call]))
            joined = builder.node(latest, _JOINED)
            for column in present:
                self.call_of[column][int(members[column])] = call
                at = builder.node(float(waits.arrival[call, column]), _START)
                end = max(float(waits.end[call, column]), latest + 1.0)
                done = builder.node(end, _END)
                builder.edge(joined, at, 0.0)
                builder.edge(done, joined, 0.0, end - latest, _TRANSFER, column, call)
                self.start[call, column], self.end[call, column] = at, done


def build_graph(views: Sequence[RankView], matched: Matched, clocks: Clocks, waits: Waits, plan: Plan) -> Graph:
    """Graph of all ranks of one window."""
    builder = Builder()
    window = _Window(builder, matched, waits)
    for column, view in enumerate(views):
        if view.device:
            _DeviceRank(builder, window, view, column, clocks, plan).add()
        else:
            _add_cpu_rank(builder, window, view, column, clocks, plan)
    return builder.finish(window.end)


class _DeviceRank:
    """One rank with a device: its host chain, then its streams."""

    def __init__(
        self, builder: Builder, window: _Window, view: RankView, column: int, clocks: Clocks, plan: Plan
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
        self.host: dict[int, int] = {}
        """Launch event -> host node."""
        self.node: dict[int, int] = {}
        """Device event -> its start node."""

    def segment(self, time: float) -> int:
        """The segment in which ``time`` lies."""
        return bisect_left(self.launches, time) + self.shift

    def add(self) -> None:
        """Nodes first, so that a blocking call may point at device work and the other way round."""
        events = self.view.trace.events
        for event in self.gpu.tolist():
            if event in self.call:
                self.node[event] = int(self.window.start[self.call[event], self.column])
                if events.launch[event] < 0:
                    self.builder.pinned[self.node[event]] = True
            else:
                fixed = events.launch[event] < 0
                self.node[event] = self.builder.node(float(self.start[event]), _START, fixed=bool(fixed))
                if self.view.kind[event] != _COMM and not fixed:
                    segment = self.segment(float(self.start[events.launch[event]]))
                    self.builder.device.append((self.column, segment, float(events.duration[event])))
        self._add_host()
        self._add_starts()

    def _done(self, event: int) -> tuple[int, float, float, int, int, int]:
        """(source, base, work, label, owner, segment) of the end of a device event."""
        if event in self.call:
            return int(self.window.end[self.call[event], self.column]), 0.0, 0.0, _NONE, -1, -1
        events = self.view.trace.events
        launch = int(events.launch[event])
        duration = float(self.end[event] - self.start[event])
        if self.view.kind[event] == _COMM or launch < 0:
            return self.node[event], duration, 0.0, _NONE, -1, -1
        return self.node[event], 0.0, duration, _DEVICE, self.column, self.segment(float(self.start[launch]))

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
        ends = self.end[by_end]
        # without operators nothing shows that the host worked while the device had run dry: then it waited for it
        silent = not bool((view.chain & (events.category == Category.CPU_OP)).any())
        free = float(self.clocks.aligned(self.column, np.array([view.start]))[0])
        if len(calls):
            free = min(free, float(self.start[calls[0]]))
        previous = builder.node(free, _HOST, fixed=True)
        for call in calls.tolist():
            begin, finish = float(self.start[call]), float(self.end[call])
            if begin < free:
                self.host[call] = previous  # nested in a blocking call: launched with it
                continue
            node = builder.node(begin, _HOST)
            drained = int(np.searchsorted(ends, begin, side="right")) - 1
            if silent and drained >= 0 and ends[drained] > free and not self._running(begin):
                builder.edge(node, previous, min(begin - free, LAUNCH_NS))
                self._after(node, int(by_end[drained]), begin - float(ends[drained]))
            else:
                builder.edge(node, previous, 0.0, begin - free, _HOST_WORK, self.column, self.segment(begin))
            self.host[call], previous, free = node, node, begin
            if finish - begin <= BLOCKING_NS:
                continue
            last = int(np.searchsorted(ends, finish, side="right")) - 1
            if last < 0 or finish - ends[last] > TAIL_NS or ends[last] <= begin:
                continue
            done = builder.node(finish, _HOST)
            builder.edge(done, node, min(finish - begin, LAUNCH_NS))
            self._after(done, int(by_end[last]), finish - float(ends[last]))
            previous, free = done, finish

    def _running(self, time: float) -> bool:
        return bool(((self.start[self.gpu] <= time) & (self.end[self.gpu] > time)).any())

    def _add_starts(self) -> None:
        events, builder = self.view.trace.events, self.builder
        waits = np.flatnonzero(self.view.chain & name_mask(self.view.trace, lambda n: "StreamWaitEvent" in n))
        wait_times = self.start[waits]
        launched = self.gpu[events.launch[self.gpu] >= 0]
        order = launched[np.argsort(self.start[events.launch[launched]], kind="stable")]
        backlog = self.gpu[events.launch[self.gpu] < 0]
        ran: dict[int, tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
        for event in backlog.tolist():
            _push(ran[int(events.stream[event])], float(self.end[event]), event)
        previous_launch: dict[int, float] = {}
        for event in order.tolist():
            stream, begin = int(events.stream[event]), float(self.start[event])
            launch = int(events.launch[event])
            asked = float(self.start[launch])
            found: list[tuple[float, int, float]] = []  # (time it allows, device event or -1, distance)
            distance = min(begin - asked, LAUNCH_NS)
            found.append((asked + distance, -1, distance))
            waited = bool(
                np.searchsorted(wait_times, asked) > np.searchsorted(wait_times, previous_launch.get(stream, -np.inf))
            )
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
            _push(ran[stream], float(self.end[event]), event)
            previous_launch[stream] = asked


def _push(ran: tuple[list[float], list[int]], end: float, event: int) -> None:
    """Note work of a stream in order of its end: nearly always last."""
    ends, which = ran
    place = bisect_right(ends, end)
    ends.insert(place, end)
    which.insert(place, event)


def _add_cpu_rank(builder: Builder, window: _Window, view: RankView, column: int, clocks: Clocks, plan: Plan) -> None:
    """A rank without a device: the host chain issues the backend's calls and waits for them."""
    events, calls = view.trace.events, view.trace.collectives
    start, end = (
        clocks.aligned(column, calls_start := events.start[calls.event]),
        clocks.aligned(column, events.end[calls.event]),
    )
    del calls_start
    issued = clocks.aligned(column, cpu_issues(view))
    launches = clocks.aligned(column, plan.times[column]).tolist()
    points: list[tuple[float, float, int, int]] = []  # (begin, resume, row issued or -1, row waited for or -1)
    points += [(float(t), float(t), row, -1) for row, t in enumerate(issued)]
    begins, resumes, targets = cpu_waits(view)
    for begin, resume, row in zip(
        clocks.aligned(column, begins).tolist(), clocks.aligned(column, resumes).tolist(), targets.tolist(), strict=True
    ):
        points.append((begin, resume, -1, row))
    points.sort()
    nodes: dict[int, int] = {}
    ends: dict[int, int] = {}
    for row in range(len(calls)):
        call = window.call_of[column].get(row)
        nodes[row] = builder.node(float(start[row]), _START) if call is None else int(window.start[call, column])
        ends[row] = nodes[row] if call is None else int(window.end[call, column])
    previous, free = builder.node(float(clocks.aligned(column, np.array([view.start]))[0]), _HOST, fixed=True), 0.0
    free = builder.time[previous]
    host: dict[int, int] = {}
    for begin, resume, issue, waited in points:
        if begin < free:
            if issue >= 0:
                host[issue] = previous
            continue
        node = builder.node(begin, _HOST)
        segment = bisect_left(launches, begin) + plan.shift[column]
        builder.edge(node, previous, 0.0, begin - free, _HOST_WORK, column, segment)
        previous, free = node, begin
        if issue >= 0:
            host[issue] = node
        else:
            done = builder.node(resume, _HOST)
            builder.edge(done, node, 0.0)
            extra = 0.0 if window.call_of[column].get(waited) is not None else float(end[waited] - start[waited])
            builder.edge(done, ends[waited], extra + resume - float(end[waited]))
            previous, free = done, resume
    newest: dict[int, int] = {}
    for row in range(len(calls)):
        thread, begin = int(events.tid[calls.event[row]]), float(start[row])
        found: list[tuple[float, int, float]] = []
        if row in host and builder.time[host[row]] <= begin:
            source, asked = host[row], builder.time[host[row]]
            distance = min(max(begin - asked, 0.0), ISSUE_NS)
            found.append((asked + distance, source, distance))
        if thread in newest:
            before = newest[thread]
            gap = max(begin - float(end[before]), 0.0)
            length = 0.0 if window.call_of[column].get(before) is not None else float(end[before] - start[before])
            found.append((begin - gap + min(gap, ISSUE_NS), ends[before], length + min(gap, ISSUE_NS)))
        newest[thread] = row
        if not found:
            builder.pinned[nodes[row]] = True
            continue
        rest = begin - max(f[0] for f in found)
        builder.residual += rest
        for _, source, distance in found:
            builder.edge(nodes[row], source, distance + rest)
