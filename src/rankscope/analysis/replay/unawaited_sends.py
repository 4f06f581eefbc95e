"""Whether the compute of a job waits for its sends, or only for what it receives.

A trace shows that a stream waited, not for what. That the sender computes on while its message is on its way is seen on
ranks that have something to compute then; the program is the same on the ranks that have not. If these were taken to
wait for their sends, a stage could never run ahead of its neighbours in a replay, and costs were too small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.communicators import canonical
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.streams import ROUNDING_NS
from rankscope.trace.names import Kind

__all__ = ["compute_stream", "overtake_sends", "send_events", "until"]

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

OFTEN = 0.05
"""Share of the sends behind which compute began before they had ended, from which on it does not wait for them. Where
it does, there is none, but for work of other streams that a trace may show on this one."""
LEAST = 5


def send_events(view: RankView) -> I64:
    """Return the events of the rank's sends, in order of their launches."""
    calls, events = view.trace.collectives, view.trace.events
    names = {kind for kind in set(calls.kind) if canonical(kind) == "send"}
    rows = [row for row, kind in enumerate(calls.kind) if kind in names] if names else []
    found = calls.event[np.array(rows, np.int64)].astype(np.int64)
    found = found[(events.launch[found] >= 0) & (events.stream[found] >= 0)]
    return found[np.argsort(events.start[events.launch[found]], kind="stable")]


def compute_stream(view: RankView) -> int:
    """Return the stream on which a rank computes longest; -1 without any compute."""
    events = view.trace.events
    rows = np.flatnonzero((view.kind == Kind.COMPUTE) & (events.stream >= 0))
    if not len(rows):
        return -1
    streams, place = np.unique(events.stream[rows], return_inverse=True)
    return int(streams[np.argmax(np.bincount(place.reshape(-1), events.duration[rows]))])


def overtake_sends(views: Sequence[RankView]) -> bool:
    """Return whether kernels launched after a send begin before it has ended, on any rank of the job."""
    seen = [_overtaken(view) for view in views if view.device]
    overtaken, sends = (sum(count) for count in zip((0, 0), *seen, strict=True))
    return bool(overtaken >= LEAST and overtaken >= OFTEN * sends)


def _overtaken(view: RankView) -> tuple[int, int]:
    """Return the number of sends behind which compute began before their end, and of all with compute behind."""
    events, sends = view.trace.events, send_events(view)
    rows = np.flatnonzero((view.kind == Kind.COMPUTE) & (events.stream == compute_stream(view)) & (events.launch >= 0))
    if not len(sends) or not len(rows):
        return 0, 0
    asked = events.start[events.launch[rows]]
    rows, asked = rows[np.argsort(asked, kind="stable")], np.sort(asked)
    next_one = np.searchsorted(asked, events.start[events.launch[sends]], side="right")
    known = next_one < len(rows)
    begin = events.start[rows[next_one[known]]]
    return int((events.end[sends[known]] > begin + ROUNDING_NS).sum()), int(known.sum())


def until(pieces: I64, turn: I64, overtaking: Mask, sends: Mask) -> I64:
    """Return for each launched piece of work the turn before which work of a stream must be launched to be waited for:
    its own, or that of the last send if it does not wait for sends.

    Args:
        pieces: the work of the stream.
        turn: turn of each piece in the order of launches, -1 where its launch is unknown.
        overtaking: which launched pieces, in that order, do not wait for sends.
        sends: which pieces are sends; pieces without a record come after these.
    """
    turns = np.arange(len(overtaking))
    mine = pieces[(pieces < len(sends)) & (turn[pieces] >= 0)]
    if not sends[mine].any() or not overtaking.any():
        return turns
    is_send = np.zeros(len(turns), np.bool_)
    is_send[turn[mine]] = sends[mine]
    own = np.sort(turn[mine])
    last = np.append(own, -1)[np.searchsorted(own, turns) - 1]
    return np.where(overtaking & (last >= 0) & (last < turns) & is_send[last], last, turns)
