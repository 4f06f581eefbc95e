"""Build the graph of one window from its ranks' traces (see ``graph`` for what the nodes mean)."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.matching.clocks import Clocks
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.matching.waits import Waits
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.collective_nodes import CallNodes
from rankscope.analysis.replay.cpu_rank import add_cpu_rank
from rankscope.analysis.replay.device_rank import DeviceRank
from rankscope.analysis.replay.graph import Builder, Graph
from rankscope.analysis.replay.segments import Plan

__all__ = ["build_graph"]


def build_graph(views: Sequence[RankView], matched: Matched, clocks: Clocks, waits: Waits, plan: Plan) -> Graph:
    """Graph of all ranks of one window."""
    builder = Builder()
    window = CallNodes(builder, matched, waits)
    for column, view in enumerate(views):
        if view.device:
            DeviceRank(builder, window, view, column, clocks, plan).add()
        else:
            add_cpu_rank(builder, window, view, column, clocks, plan)
    return builder.finish(window.end)
