"""The replay of a job of one rank, which makes no calls: its steps end with the last work of its device."""

from __future__ import annotations

import numpy as np

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.build import begins
from rankscope.analysis.replay.builder import Builder
from rankscope.analysis.replay.collective_nodes import CallNodes
from rankscope.analysis.replay.device_rank import DeviceRank, least_gaps
from rankscope.analysis.replay.segments import Plan
from rankscope.analysis.replay.what_if import Replay, replay_of
from rankscope.trace.names import Kind

__all__ = ["ALONE", "replay_alone"]

ALONE = "only one rank was recorded"
"""Why a window of one rank is refused. Its replay tells what other work would gain, and nothing of other ranks."""


def replay_alone(view: RankView, matched: Matched, clocks: Clocks, waits: Waits) -> tuple[Plan, Replay] | None:
    """Return segments and replay of one rank with a device; None if it communicates, since it may wait for others.

    A segment is the work that one launch starts, because there are no calls that could bound segments, and no other
    rank to compare them with.

    Args:
        view: the rank.
        matched: the calls of its window: none.
        clocks: its clock.
        waits: its steps.
    """
    if not view.device or not view.steps or bool((view.kind == Kind.COMMUNICATION).any()):
        return None
    events = view.trace.events
    launch = np.unique(events.launch[(events.launch >= 0) & (events.stream >= 0)]).astype(np.int64)
    launch = launch[np.argsort(events.start[launch], kind="stable")]
    plan = Plan([np.empty(0, np.int64)], [events.start[launch]], [0], [[0]])
    builder, begin = Builder(), begins(view, 0, clocks, waits.steps)
    rank = DeviceRank(builder, CallNodes(builder, matched, waits), view, 0, clocks, plan, begin)
    rank.add(least_gaps([rank]))
    ends = rank.add_step_ends()
    if not len(ends):
        return None
    graph = builder.finish(ends)
    nodes = list(graph.ends[:, None].astype(np.int64))
    return plan, replay_of(graph, nodes, np.zeros(len(ends)), np.ones(len(ends), np.int64), begin, plan)
