"""Segments that can be compared between ranks: those that both recorded from begin to end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank.losses import find_losses
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.segments import Plan, launch_times
from rankscope.analysis.stragglers.profile import Profile
from rankscope.trace.names import Kind
from rankscope.trace.scratch import give_back

__all__ = ["comparable"]

MISSED = 0.02
"""A rank whose first event comes later than this share of a step was not recorded from the begin of the step."""


def comparable(
    views: Sequence[RankView],
    profiles: Sequence[Profile],
    plan: Plan,
    extra: Sequence[Sequence[int]],
    step_ns: float,
    *,
    lossy: bool,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return two masks, R x S: segments that a rank and all its peers recorded completely, and those of device work.

    A window may be cut on one of the ranks. A lost device record does not affect the host's time.

    Args:
        views: the ranks.
        profiles: their segments.
        plan: the ranks with which each is compared.
        extra: per rank the rows of calls that no other member recorded.
        step_ns: the job's step.
        lossy: whether some rank lost device records.
    """
    give_back()
    alone = np.array([plan.whole(c) for c in range(len(views))])
    lost, kernels = np.zeros_like(alone), np.zeros(alone.shape, np.int64)
    for column, (view, own) in enumerate(zip(views, profiles, strict=True)):
        more = np.array(extra[column], np.int64)
        more = more[~np.isin(more, plan.rows[column])] if len(more) else more
        inside = np.searchsorted(own.bounds, launch_times(view, more), side="right") - 1 + plan.shift[column]
        alone[column, inside[(inside >= 0) & (inside < plan.size)]] = False
        if lossy:
            events = view.trace.events
            launch = events.launch[(view.kind == Kind.COMPUTE) & (events.launch >= 0)]
            np.add.at(kernels[column], _segment(events.start[launch], own, plan, column), 1)
            lost[column, _segment(find_losses([view.trace])[0].at, own, plan, column)] = True
        # In the segment in which recording began on all ranks, the host may have waited for a rank that was not
        # recorded yet.
        apart = np.flatnonzero((own.bounds[:-1] < view.start) & (own.bounds[1:] >= view.start)) + plan.shift[column]
        alone[column, apart[apart < plan.size]] = False
        first = view.trace.events.start[view.chain]
        if len(first) and int(first[0]) - view.start > MISSED * step_ns:
            alone[column, plan.shift[column]] = False
    whole, sound = alone.copy(), alone & ~lost
    for team in plan.teams.values():
        # If only the record of a call was lost, all compute is there.
        light = (lost[team] & (kernels[team] < kernels[team].max(axis=0))).any(axis=0)
        whole[team] = alone[team].all(axis=0)
        sound[team] = whole[team] & ~light
    return whole, sound


def _segment(times: NDArray[np.int64], own: Profile, plan: Plan, column: int) -> NDArray[np.int64]:
    """Return the positions of the segments that contain these times of a rank; times outside of all are left out."""
    found = np.searchsorted(own.bounds, times, side="right") - 1 + plan.shift[column]
    return np.asarray(found[(found >= plan.shift[column]) & (found < plan.size)])
