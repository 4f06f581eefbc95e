"""Device records that are missing from the file: launches without their work.

A profiler that loses records does not report it. A launch and its work carry the same id. In complete traces every
launch up to the last that the device reached has its work; this held on each of 70 recorded ranks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank.select import one_of
from rankscope.analysis.rank.view import name_mask
from rankscope.trace.columns import Category, RankTrace

__all__ = ["CALL_TESTS", "Losses", "find_losses"]

Mask = NDArray[np.bool_]

_LAUNCH = re.compile(r"LaunchKernel|KernelLaunch|GraphLaunch|LaunchCooperative", re.IGNORECASE)
_COPY = re.compile(r"mem(cpy|set)|fill|copy", re.IGNORECASE)
_DRAIN = re.compile(r"^(cuda|hip)DeviceSynchronize$|^(cu|hip)CtxSynchronize$")
_CAPTURE = re.compile(r"Stream(Begin|End)Capture")
CALL_TESTS = (_LAUNCH, _COPY, _DRAIN, _CAPTURE)
"""All tests that are applied to the name of a call."""
USUAL = 0.5
"""A call counts as a launch if at least this share of its events has work on some rank."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What one rank launched on its device, and how much of it the trace lacks."""

    launches: int
    """Number of launches whose work must be in the trace."""
    lost: int
    recorded: bool
    """Whether the trace contains any device work."""
    at: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64), compare=False)
    """Launch times of the lost work, ns of the rank's clock."""

    @property
    def share(self) -> float:
        """Share of the launches without work."""
        return self.lost / self.launches if self.launches else 0.0

    @property
    def blind(self) -> bool:
        """Whether it launched work, and none was recorded."""
        return not self.recorded and self.lost > 0

    def words(self) -> str:
        """Return a description for the report."""
        if self.blind:
            return f"no device work was recorded: {self.launches} launches have no kernel"
        kernels = "1 kernel is" if self.lost == 1 else f"{self.lost} kernels are"
        return (
            f"{kernels} missing: {self.lost} of {self.launches} launches ({100 * self.share:.1f} %) have no kernel in "
            "the trace, so that its compute seems shorter and its idle time longer than they were"
        )


def find_losses(traces: Sequence[RankTrace]) -> list[Losses]:
    """Find the losses of each rank of a window. Which calls launch work is learned from all ranks."""
    launching: set[str] = set()
    for trace in traces:
        calls = one_of(trace.events.category, (Category.CUDA_RUNTIME, Category.CUDA_DRIVER))
        names = trace.events.name[calls]
        asked = np.bincount(names, minlength=len(trace.strings))
        had = np.bincount(names[trace.events.launching[calls]], minlength=len(trace.strings))
        launching |= {trace.strings[n] for n in np.flatnonzero((had >= USUAL * asked) & (asked > 0)).tolist()}
    launching = {name for name in launching if not _COPY.search(name)}
    return [_of(trace, launching) for trace in traces]


def _of(trace: RankTrace, launching: set[str]) -> Losses:
    events = trace.events
    calls = one_of(events.category, (Category.CUDA_RUNTIME, Category.CUDA_DRIVER))
    launches = calls & name_mask(trace, lambda name: name in launching or _LAUNCH.search(name) is not None)
    launches &= ~_captured(trace, calls)
    due = launches & (events.start < _reached(trace, calls, launches))
    lost = events.start[due & ~events.launching]
    return Losses(int(due.sum()), len(lost), trace.has_device, lost)


def _reached(trace: RankTrace, calls: Mask, launches: Mask) -> int:
    """Return the time up to which launched work must be in the trace, ns of the rank's clock.

    It is the launch of the last recorded work on the stream that is furthest behind, or the last synchronisation of the
    whole device: later work may still have been running when the recording ended. If nothing was recorded, all work
    must be there.
    """
    events = trace.events
    launched = np.flatnonzero(events.launch >= 0)
    if not len(launched):
        return int(events.end.max()) + 1
    asked = events.start[events.launch[launched]]
    _, device = np.unique(events.pid[launched], return_inverse=True)
    stream = events.stream[launched].astype(np.int64)
    _, which = np.unique(device * (int(stream.max()) + 2) + stream, return_inverse=True)
    lasts = np.zeros(int(which.max()) + 1, np.int64)
    np.maximum.at(lasts, which, asked)
    # A stream whose last use precedes the device's backlog is not behind but finished.
    behind = max(int(events.start[launches].max(initial=0)) - int(lasts.max()), 0)
    last = int(lasts[lasts >= lasts.max() - behind].min())
    drained = events.start[calls & name_mask(trace, lambda name: _DRAIN.search(name) is not None)]
    return max(last, int(drained.max()) if len(drained) else last)


def _captured(trace: RankTrace, calls: Mask) -> Mask:
    """Return the calls during the capture of a graph on their thread, which launch nothing."""
    events = trace.events
    rows = np.flatnonzero(calls & name_mask(trace, lambda name: _CAPTURE.search(name) is not None))
    inside = np.zeros(len(events), np.bool_)
    opened: dict[tuple[int, int], int] = {}
    for row in rows.tolist():
        thread = (int(events.pid[row]), int(events.tid[row]))
        if "Begin" in trace.strings[events.name[row]]:
            opened.setdefault(thread, int(events.start[row]))
        elif (begun := opened.pop(thread, None)) is not None:
            within = (events.start >= begun) & (events.start < events.end[row])
            inside |= within & (events.pid == thread[0]) & (events.tid == thread[1])
    return inside
