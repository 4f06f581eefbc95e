"""A rank without a device as part of the graph: the host chain issues the backend's calls and waits for them."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from rankscope.analysis.callnodes import HOST, START, CallNodes
from rankscope.analysis.clocks import Clocks
from rankscope.analysis.graph import Builder, Work
from rankscope.analysis.host import cpu_issues, cpu_waits
from rankscope.analysis.segments import Plan
from rankscope.analysis.view import RankView

__all__ = ["add_cpu_rank"]

ISSUE_NS = 300_000.0
"""CPU backends: least time from issuing a call to its start on the backend's thread."""

_HOST_WORK = int(Work.HOST)


def add_cpu_rank(builder: Builder, window: CallNodes, view: RankView, column: int, clocks: Clocks, plan: Plan) -> None:
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
        nodes[row] = builder.node(float(start[row]), START) if call is None else int(window.start[call, column])
        ends[row] = nodes[row] if call is None else int(window.end[call, column])
    previous, free = builder.node(float(clocks.aligned(column, np.array([view.start]))[0]), HOST, fixed=True), 0.0
    free = builder.time[previous]
    host: dict[int, int] = {}
    for begin, resume, issue, waited in points:
        if begin < free:
            if issue >= 0:
                host[issue] = previous
            continue
        node = builder.node(begin, HOST)
        segment = bisect_left(launches, begin) + plan.shift[column]
        builder.edge(node, previous, 0.0, begin - free, _HOST_WORK, column, segment)
        previous, free = node, begin
        if issue >= 0:
            host[issue] = node
        else:
            done = builder.node(resume, HOST)
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
