"""Comparison of one rank's operators with a peer's: which it runs more often, and which take longer on it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rankscope.analysis.operators.python_lines import UserFrames, user_frames
from rankscope.analysis.operators.work import operator_work
from rankscope.analysis.rank.view import RankView
from rankscope.records.evidence import OperatorExcess

__all__ = ["operator_excess"]

MOST = 5
"""Number of operators reported per rank."""
LEAST = 0.05
"""Smallest share of the extra time of all operators from which on an operator is reported."""


def operator_excess(late: RankView, peer: RankView) -> list[OperatorExcess]:
    """Return the operators that take more of a step on ``late`` than on ``peer``, most first.

    Kernels that run beside a waiting collective take longer, so the times of a rank that waits are upper limits.
    """
    own, other = _by_name(late), _by_name(peer)
    extra = {name: own[name][1] - other.get(name, (0.0, 0.0))[1] for name in own}
    whole = sum(ms for ms in extra.values() if ms > 0)
    leading = [name for name in sorted(extra, key=lambda n: -extra[n]) if extra[name] > max(LEAST * whole, 0.0)][:MOST]
    frames, theirs = user_frames(late), user_frames(peer)
    return [
        OperatorExcess(
            name=name,
            calls=own[name][0],
            peers_calls=other.get(name, (0.0, 0.0))[0],
            ms=own[name][1],
            peers_ms=other.get(name, (0.0, 0.0))[1],
            line=_line(late, peer, frames, theirs, name),
        )
        for name in leading
    ]


def _by_name(view: RankView) -> dict[str, tuple[float, float]]:
    """Return name -> calls and ms per step."""
    work, events = operator_work(view), view.trace.events
    steps = max(view.steps, 1)
    names, place = np.unique(events.name[work.event], return_inverse=True)
    calls, ns = np.bincount(place, minlength=len(names)), np.bincount(place, work.ns, len(names))
    return {
        view.trace.strings[code]: (count / steps, time / 1e6 / steps)
        for code, count, time in zip(names.tolist(), calls.tolist(), ns.tolist(), strict=True)
    }


def _line(late: RankView, peer: RankView, frames: UserFrames, theirs: UserFrames, name: str) -> str:
    """Return the user's function with most calls beyond the peer's; empty if no stacks were recorded."""
    if not len(frames):
        return ""
    own, other = Counter(_callers(late, frames, name)), Counter(_callers(peer, theirs, name))
    extra = own - other if len(theirs) else own
    return next((line for line, _ in (extra or own).most_common() if line), "")


def _callers(view: RankView, frames: UserFrames, name: str) -> list[str]:
    events = view.trace.events
    work = operator_work(view)
    rows = work.event[[view.trace.strings[code] == name for code in events.name[work.event].tolist()]]
    return frames.at(events.start[rows])
