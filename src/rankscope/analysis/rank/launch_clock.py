"""Host and device clocks of one process, where they are apart by more than a launch takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope.analysis.rank.select import take
from rankscope.trace.columns import RankTrace

__all__ = ["LEAST_LAUNCHES", "settle_launches"]

LEAST_LAUNCHES = 3
"""So many kernels before their launch are no accident of one correlation id that was used twice."""

SURE = 0.95
"""Quantile of what kernels are early by that is taken for the distance of the clocks; beyond it are accidents."""


def settle_launches(trace: RankTrace) -> tuple[RankTrace, int]:
    """Move the host's times back by as much as kernels seem to begin before their launches.

    Kineto converts the device's clock to the host's, with an error that differs between processes. No kernel begins
    before it is launched; device times stay, as the ends of collectives tie them to the other ranks.

    Returns:
        The trace, and by how many ns its host times were moved.
    """
    events, steps = trace.events, trace.steps
    device = np.flatnonzero(events.launch >= 0)
    early = events.start[events.launch[device]] - events.start[device]
    early = early[early > 0]
    if len(early) < LEAST_LAUNCHES:
        return trace, 0
    shift = int(np.quantile(early, SURE))
    host = events.stream < 0
    start = np.where(host, events.start - shift, events.start)
    moved = replace(
        trace,
        events=replace(events, start=start),
        steps=replace(steps, start=steps.start - shift),
        python=replace(trace.python, start=trace.python.start - shift),
    )
    return take(moved, np.lexsort((-events.duration, start))), shift
