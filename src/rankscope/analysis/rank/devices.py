"""Several devices used by one process; each is busy or idle by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope.analysis.rank.select import distinct, one_of
from rankscope.analysis.rank.view import RankView
from rankscope.trace.names import Kind

__all__ = ["by_device", "devices"]

LEAST = 0.01
"""A device that computes less than this share of what the busiest one does is taken to hold data only."""


def devices(view: RankView) -> list[int]:
    """Return the numbers of the devices that this rank computes or communicates on."""
    events = view.trace.events
    work = one_of(view.kind, (Kind.COMPUTE, Kind.COMMUNICATION, Kind.FUSED)) & (events.stream >= 0)
    pid = events.pid[np.flatnonzero(work)]
    numbers = distinct(pid)
    if len(numbers) < 2:
        return [int(n) for n in numbers]
    busy = np.bincount(np.searchsorted(numbers, pid), events.duration[work])
    return [int(n) for n in numbers[busy >= LEAST * busy.max()]]


def by_device(view: RankView) -> list[RankView]:
    """Return one view per device, with the work of that device only; with one device or none, the view itself."""
    numbers = devices(view) if view.device else []
    if len(numbers) < 2:
        return [view]
    found = []
    for number in numbers:
        other = (view.trace.events.stream >= 0) & (view.trace.events.pid != number)
        kind = np.where(other, np.int8(Kind.OTHER), view.kind)
        own = replace(view, kind=kind)
        own.compute, own.comm = own.spans(kind == Kind.COMPUTE), own.spans(kind == Kind.COMMUNICATION)
        own.copy, own.fused = own.spans(kind == Kind.COPY), own.spans(kind == Kind.FUSED)
        found.append(own)
    return found
