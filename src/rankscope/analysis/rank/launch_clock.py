"""Host and device clocks of one process, if they differ by more than a launch takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope.analysis.rank.select import take
from rankscope.trace.columns import RankTrace

__all__ = ["LEAST_LAUNCHES", "settle_launches"]

LEAST_LAUNCHES = 3
"""Number of kernels before their launch from which on the clocks are corrected; fewer may have a correlation id that
was used twice."""

SURE = 0.95
"""Quantile of the time by which kernels precede their launches that is taken as the clock offset; the rest are
outliers."""


def settle_launches(trace: RankTrace) -> tuple[RankTrace, int]:
    """Move the host's times back by as much as kernels seem to begin before their launches.

    Kineto converts the device's clock to the host's, with an error that differs between processes. A kernel cannot
    begin before its launch. Device times are kept, because the ends of collectives relate them to the other ranks.

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
