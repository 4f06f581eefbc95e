"""Build the graph of one window from its ranks' traces; ``graph`` explains its nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.clocks.steps import JobSteps
from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.builder import Builder
from rankscope.analysis.replay.collective_nodes import CallNodes
from rankscope.analysis.replay.cpu_rank import add_cpu_rank
from rankscope.analysis.replay.device_rank import DeviceRank, least_gaps
from rankscope.analysis.replay.graph import Graph
from rankscope.analysis.replay.segments import Plan
from rankscope.analysis.replay.unawaited_sends import overtake_sends
from rankscope.trace.scratch import give_back

__all__ = ["begins", "build_graph"]


def build_graph(views: Sequence[RankView], matched: Matched, clocks: Clocks, waits: Waits, plan: Plan) -> Graph:
    """Build the graph of all ranks of one window."""
    give_back()
    builder = Builder()
    window, ranks = CallNodes(builder, matched, waits), list[DeviceRank]()
    builder.settle()
    overtake = overtake_sends(views)
    for column, view in enumerate(views):
        begin = begins(view, column, clocks, waits.steps)
        if view.device:
            ranks.append(DeviceRank(builder, window, view, column, clocks, plan, begin, overtake=overtake))
        else:
            add_cpu_rank(builder, window, view, column, clocks, plan, begin)
            builder.settle()
    least = least_gaps(ranks)
    ranks.reverse()
    while ranks:
        ranks.pop().add(least)
        builder.settle()
    give_back()
    graph = builder.finish(window.end, window.start, matched.column)
    give_back()
    return graph


def begins(view: RankView, column: int, clocks: Clocks, steps: JobSteps) -> float:
    """Time at which a rank begins the first step that all ranks recorded, in ns of the aligned clock.

    Without step marks it is the begin of its records. Work launched before is not varied, because ranks that were not
    recorded yet cannot be moved with it.
    """
    start = view.start
    if view.steps and len(steps.common):
        later = np.flatnonzero(steps.of_rank(view, column) >= steps.common[0])
        if len(later):
            # By step, not by time: a host that runs ahead has launched its steps before those of the others begin.
            mark = int(view.trace.steps.start[later[0]])
            start = mark if later[0] else min(start, mark)
    return float(clocks.aligned(column, np.array([start]))[0])
