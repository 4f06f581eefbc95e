"""Build the graph of one window from its ranks' traces (see ``graph`` for what the nodes mean)."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.callnodes import CallNodes
from rankscope.analysis.clocks import Clocks
from rankscope.analysis.collectives import Matched
from rankscope.analysis.graph import Builder, Graph
from rankscope.analysis.replaycpu import add_cpu_rank
from rankscope.analysis.replaydevice import DeviceRank
from rankscope.analysis.segments import Plan
from rankscope.analysis.view import RankView
from rankscope.analysis.waits import Waits

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
