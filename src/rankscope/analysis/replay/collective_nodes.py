"""The nodes of the graph that ranks share: arrivals and ends of matched calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.matching.collectives import TOGETHER, Matched
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.builder import Builder
from rankscope.analysis.replay.graph import Work

__all__ = ["END", "HOST", "JOINED", "START", "CallNodes"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

# Order of nodes of equal time: an end enables what starts at that time, and the last arrival completes the arrivals.
END, HOST, START, JOINED = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class LostCalls:
    """Calls of a rank's groups of which it has no record, between calls of the same group that it recorded."""

    node: I64
    """Node of the end of the call on the member on which it ended first."""
    time: F64
    """Time of that end, in ns of the aligned clock."""
    row: I64
    """A row of the rank's calls of the same channel, which shows the stream."""


class CallNodes:
    """Start and end nodes of the matched calls, one of each for every member."""

    def __init__(self, builder: Builder, matched: Matched, waits: Waits) -> None:
        self.matched = matched
        latest = matched.last_awaited(waits.arrival)
        some = matched.partial[matched.call]
        # One node for all members that wait for the same arrivals; one for each member in calls listed in ``awaits``.
        shares = np.where(some, np.arange(len(some)), matched.first[:-1][matched.call])
        own, place = np.unique(shares, return_inverse=True)
        joined = builder.nodes(latest[own], JOINED)[place.reshape(-1)]
        # A message can be sent before the receiver waits for it: such a send does not wait for the last arrival.
        early = (waits.end < latest) & np.array([k not in TOGETHER for k in matched.kind], np.bool_)[matched.call]
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
        """Return the calls in which a rank took part without a record. Its later work may have waited for them."""
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
        """Return the member on which the call ended first."""
        low, high = int(self.matched.first[call]), int(self.matched.first[call + 1])
        return low + int(np.argmin(self.time[low:high]))

    def member_of(self, view: RankView, column: int) -> I64:
        """Return the member of each of a rank's calls, -1 where it was not matched."""
        found = np.full(len(view.trace.collectives), -1, np.int64)
        mine = self.matched.of(column)
        found[self.matched.row[mine]] = mine
        return found
