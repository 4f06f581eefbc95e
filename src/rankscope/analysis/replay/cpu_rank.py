"""A rank without a device as part of the graph: the host chain issues the backend's calls and waits for them."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.rank.cpu_only import cpu_issues, cpu_waits
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.builder import Builder
from rankscope.analysis.replay.collective_nodes import HOST, START, CallNodes
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.segments import Plan

__all__ = ["add_cpu_rank"]

_Edge = tuple[int, int, float, float, int, int]
"""(target, source, base, work, label, segment); base and work in ns."""

ISSUE_NS = 300_000.0
"""Largest time from issuing a call to its start on the backend's thread that is taken to be fixed, in ns; the rest is
residual."""


def add_cpu_rank(
    builder: Builder,
    window: CallNodes,
    view: RankView,
    column: int,
    clocks: Clocks,
    plan: Plan,
    from_time: float = -np.inf,
) -> None:
    """Add a rank without a device to the graph.

    What was issued before ``from_time`` (aligned clock, ns) keeps its recorded times.
    """
    events, calls = view.trace.events, view.trace.collectives
    start = clocks.aligned(column, events.start[calls.event])
    end = clocks.aligned(column, events.end[calls.event])
    member = window.member_of(view, column)
    matched = member >= 0
    nodes = np.empty(len(calls), np.int64)
    nodes[matched], nodes[~matched] = window.start[member[matched]], builder.nodes(start[~matched], START)
    ends, length = nodes.copy(), np.where(matched, 0.0, end - start)
    ends[matched] = window.end[member[matched]]
    ended = end.copy()
    ended[matched] = window.time[member[matched]]

    builder.pin(nodes[start < from_time])
    edges: list[_Edge] = []
    host = _add_host(
        builder, view, column, clocks, plan, (ends.tolist(), end.tolist(), length.tolist()), edges, from_time
    )
    newest: dict[int, int] = {}
    for row, (thread, begin) in enumerate(zip(events.tid[calls.event].tolist(), start.tolist(), strict=True)):
        found: list[tuple[float, int, float]] = []
        if row in host and host[row][1] <= begin:
            source, asked = host[row]
            distance = min(max(begin - asked, 0.0), ISSUE_NS)
            found.append((asked + distance, source, distance))
        before = newest.get(thread, -1)
        if before >= 0 and ended[before] <= begin:  # else both ran at the same time
            gap = max(begin - float(end[before]), 0.0)
            near = min(gap, ISSUE_NS)
            found.append((begin - gap + near, int(ends[before]), float(length[before]) + near))
        newest[thread] = row
        if not found:
            builder.pin(nodes[row : row + 1])
            continue
        rest = begin - max(f[0] for f in found)
        builder.residual += rest
        edges += [(int(nodes[row]), source, distance + rest, 0.0, int(Work.NONE), -1) for _, source, distance in found]
    if edges:
        target, origin, base, work, label, segment = (np.array(c) for c in zip(*edges, strict=True))
        builder.edges(target, origin, base, work, label, np.where(label == Work.NONE, -1, column), segment)


def _add_host(
    builder: Builder,
    view: RankView,
    column: int,
    clocks: Clocks,
    plan: Plan,
    done: tuple[list[int], list[float], list[float]],
    edges: list[_Edge],
    from_time: float,
) -> dict[int, tuple[int, float]]:
    """Add the host chain; returns node and time (ns, aligned clock) at which each call was issued.

    ``done`` holds lists with one value for each call: the node of its end, the time of its end, and its duration (ns)
    if no other rank's arrival decides it.
    """
    issued = clocks.aligned(column, cpu_issues(view))
    launches = clocks.aligned(column, plan.times[column]).tolist()
    points = [(t, t, row, -1) for row, t in enumerate(issued.tolist())]  # (begin, resume, row issued, row waited for)
    begins, resumes, rows = cpu_waits(view)
    waits = clocks.aligned(column, begins).tolist(), clocks.aligned(column, resumes).tolist(), rows.tolist()
    points += [(begin, resume, -1, row) for begin, resume, row in zip(*waits, strict=True)]
    first = free = float(clocks.aligned(column, np.array([view.start]))[0])
    times, host = [first], {}
    base = builder.count
    ends, end, length = done
    for begin, resume, issue, waited in sorted(points):
        if begin >= free:
            segment = bisect_left(launches, begin) + plan.shift[column]
            edges.append((base + len(times), base + len(times) - 1, 0.0, begin - free, int(Work.HOST), segment))
            times.append(begin)
            free = begin
        elif issue < 0:
            continue
        if issue >= 0:
            host[issue] = (base + len(times) - 1, times[-1])
            continue
        edges.append((base + len(times), base + len(times) - 1, 0.0, 0.0, int(Work.NONE), -1))
        edges.append((base + len(times), ends[waited], length[waited] + resume - end[waited], 0.0, int(Work.NONE), -1))
        times.append(resume)
        free = resume
    builder.nodes(times, HOST, fixed=np.array(times) <= max(first, from_time))
    return host
