"""The nodes of the graph that all ranks share: arrivals and ends of matched calls."""

from __future__ import annotations

import numpy as np

from rankscope.analysis.collectives import Matched
from rankscope.analysis.graph import Builder, Work
from rankscope.analysis.waits import Waits

__all__ = ["END", "HOST", "JOINED", "START", "CallNodes"]

# order among nodes of the same time: an end frees what starts at that time; the last arrival completes the arrivals
END, HOST, START, JOINED = 0, 1, 2, 3


class CallNodes:
    """The nodes all ranks share: arrivals and ends of matched calls."""

    def __init__(self, builder: Builder, matched: Matched, waits: Waits) -> None:
        self.builder = builder
        self.start = np.full(matched.rows.shape, -1, np.int64)
        self.end = np.full(matched.rows.shape, -1, np.int64)
        self.call_of: list[dict[int, int]] = [{} for _ in matched.ranks]
        for call, members in enumerate(matched.rows):
            present = np.flatnonzero(members >= 0).tolist()
            latest = float(np.nanmax(waits.arrival[call]))
            joined = builder.node(latest, JOINED)
            for column in present:
                self.call_of[column][int(members[column])] = call
                at = builder.node(float(waits.arrival[call, column]), START)
                end = max(float(waits.end[call, column]), latest + 1.0)
                done = builder.node(end, END)
                builder.edge(joined, at, 0.0)
                builder.edge(done, joined, 0.0, end - latest, int(Work.TRANSFER), column, call)
                self.start[call, column], self.end[call, column] = at, done
