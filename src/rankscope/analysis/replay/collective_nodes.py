"""The nodes of the graph that all ranks share: arrivals and ends of matched calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import TOGETHER, Matched
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.graph import Builder, Work

__all__ = ["END", "HOST", "JOINED", "START", "CallNodes"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

# order among nodes of the same time: an end frees what starts at that time; the last arrival completes the arrivals
END, HOST, START, JOINED = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class LostCalls:
    """Calls of a rank's groups that it has no record of although it has some before and after them."""

    node: I64
    """End of the call on the rank that it ended on first."""
    time: F64
    """When that was, ns on the aligned axis."""
    row: I64
    """A row of the rank's with the same group, which shows the stream."""


class CallNodes:
    """Start and end nodes, one a member of the matched calls."""

    def __init__(self, builder: Builder, matched: Matched, waits: Waits) -> None:
        self.matched = matched
        latest = matched.last_awaited(waits.arrival)
        some = matched.partial[matched.call]
        # one node for what all members wait for; where each waits for its own peers one a member
        shares = np.where(some, np.arange(len(some)), matched.first[:-1][matched.call])
        own, place = np.unique(shares, return_inverse=True)
        joined = builder.nodes(latest[own], JOINED)[place.reshape(-1)]
        # a message can be on its way before it is awaited: such a send does not wait for the last arrival
        early = (waits.end < latest) & np.array([k not in TOGETHER for k in matched.kind])[matched.call]
        end = np.where(early, waits.end, np.maximum(waits.end, latest + 1.0))
        end = np.maximum(end, waits.arrival + 1.0)
        self.time = end
        self.start, self.end = builder.nodes(waits.arrival, START), builder.nodes(end, END)
        builder.edges(joined, self.start, 0.0)
        if matched.awaits.size:
            builder.edges(joined[matched.awaits[0]], self.start[matched.awaits[1]], 0.0)
        source = np.where(early, self.start, joined)
        transfer = end - np.where(early, waits.arrival, latest)
        builder.edges(self.end, source, 0.0, transfer, Work.TRANSFER, matched.column, matched.call)

    def lost_by(self, column: int) -> LostCalls:
        """Calls that a rank took part in without a record of it: its later work may wait for them all the same."""
        matched = self.matched
        mine = matched.of(column)
        calls, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        if matched.lost[column]:
            for channel in np.unique(matched.channel[matched.call[mine]]).tolist():
                own = mine[matched.channel[matched.call[mine]] == channel]
                every = np.flatnonzero(matched.channel == channel)
                every = every[(every > matched.call[own[0]]) & (every < matched.call[own[-1]])]
                missing = np.setdiff1d(every, matched.call[own])
                calls.append(missing)
                rows.append(np.full(len(missing), matched.row[own[0]], np.int64))
        lost = np.concatenate(calls)
        first = np.array([self._earliest(int(call)) for call in lost], np.int64)
        return LostCalls(self.end[first], self.time[first], np.concatenate(rows))

    def _earliest(self, call: int) -> int:
        """The member whose end of a call comes first."""
        low, high = int(self.matched.first[call]), int(self.matched.first[call + 1])
        return low + int(np.argmin(self.time[low:high]))

    def member_of(self, view: RankView, column: int) -> I64:
        """Member that each of a rank's calls is, -1 where it was not matched."""
        found = np.full(len(view.trace.collectives), -1, np.int64)
        mine = self.matched.of(column)
        found[self.matched.row[mine]] = mine
        return found
