"""The nodes of the graph that all ranks share: arrivals and ends of matched calls."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.matching.waits import Waits
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.graph import Builder, Work

__all__ = ["END", "HOST", "JOINED", "START", "CallNodes"]

I64 = NDArray[np.int64]

# order among nodes of the same time: an end frees what starts at that time; the last arrival completes the arrivals
END, HOST, START, JOINED = 0, 1, 2, 3


class CallNodes:
    """Start and end nodes, one a member of the matched calls."""

    def __init__(self, builder: Builder, matched: Matched, waits: Waits) -> None:
        self.matched = matched
        latest = np.maximum.reduceat(waits.arrival, matched.first[:-1]) if len(matched) else np.empty(0)
        joined = builder.nodes(latest, JOINED)[matched.call]
        end = np.maximum(waits.end, latest[matched.call] + 1.0)
        self.start, self.end = builder.nodes(waits.arrival, START), builder.nodes(end, END)
        builder.edges(joined, self.start, 0.0)
        transfer = end - latest[matched.call]
        builder.edges(self.end, joined, 0.0, transfer, Work.TRANSFER, matched.column, matched.call)

    def member_of(self, view: RankView, column: int) -> I64:
        """Member that each of a rank's calls is, -1 where it was not matched."""
        found = np.full(len(view.trace.collectives), -1, np.int64)
        mine = self.matched.of(column)
        found[self.matched.row[mine]] = mine
        return found
