"""Device records that are missing from the file: launches without their work.

A profiler that loses records does not report it. A launch and its work carry the same id. In complete traces every
launch up to the last that the device reached has its work; this held on each of 70 recorded ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank.select import distinct, one_of
from rankscope.trace.columns import Category, RankTrace

__all__ = ["CALL_TESTS", "Losses", "find_losses"]

Rows = NDArray[np.int64]

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
        calls = _calls(trace)
        names = trace.events.name[calls]
        asked = np.bincount(names, minlength=len(trace.strings))
        had = np.bincount(names[trace.events.launching[calls]], minlength=len(trace.strings))
        launching |= {trace.strings[n] for n in np.flatnonzero((had >= USUAL * asked) & (asked > 0)).tolist()}
    launching = {name for name in launching if not _COPY.search(name)}
    return [_of(trace, launching) for trace in traces]


def _calls(trace: RankTrace) -> Rows:
    """Return the rows of runtime and driver calls."""
    return np.flatnonzero(one_of(trace.events.category, (Category.CUDA_RUNTIME, Category.CUDA_DRIVER)))


def _of(trace: RankTrace, launching: set[str]) -> Losses:
    events, calls = trace.events, _calls(trace)
    names = events.name[calls]
    used = np.flatnonzero(np.bincount(names)).tolist()

    def named(test: Callable[[str], object]) -> Rows:
        return calls[one_of(names, [code for code in used if test(trace.strings[code])])]

    launches = named(lambda name: name in launching or _LAUNCH.search(name))
    launches = launches[~_captured(trace, launches, named(_CAPTURE.search))]
    due = launches[events.start[launches] < _reached(trace, launches, named(_DRAIN.search))]
    lost = events.start[due[~events.launching[due]]]
    return Losses(len(due), len(lost), trace.has_device, lost)


def _reached(trace: RankTrace, launches: Rows, drains: Rows) -> int:
    """Return the time up to which launched work must be in the trace, ns of the rank's clock.

    It is the launch of the last recorded work on the stream that is furthest behind, or the last synchronisation of the
    whole device (``drains``): later work may still have been running when the recording ended. If nothing was recorded,
    all work must be there.
    """
    events = trace.events
    launched = np.flatnonzero(events.launch >= 0)
    if not len(launched):
        return int(events.end.max()) + 1
    asked, pid, stream = events.start[events.launch[launched]], events.pid[launched], events.stream[launched]
    on_device = [pid == device for device in distinct(pid)]
    lasts = np.array([asked[mine & (stream == n)].max() for mine in on_device for n in distinct(stream[mine])])
    # A stream whose last use precedes the device's backlog is not behind but finished.
    behind = max(int(events.start[launches].max(initial=0)) - int(lasts.max()), 0)
    last = int(lasts[lasts >= lasts.max() - behind].min())
    return max(last, int(events.start[drains].max())) if len(drains) else last


def _captured(trace: RankTrace, launches: Rows, marks: Rows) -> NDArray[np.bool_]:
    """Return which launches are part of the capture of a graph on their thread (its begin and end are ``marks``): these
    launch nothing."""
    events = trace.events
    inside = np.zeros(len(launches), np.bool_)
    opened: dict[tuple[int, int], int] = {}
    for row in marks.tolist():
        thread = (int(events.pid[row]), int(events.tid[row]))
        if "Begin" in trace.strings[events.name[row]]:
            opened.setdefault(thread, int(events.start[row]))
        elif (begun := opened.pop(thread, None)) is not None:
            start = events.start[launches]
            within = (start >= begun) & (start < events.start[row] + events.duration[row])
            inside |= within & (events.pid[launches] == thread[0]) & (events.tid[launches] == thread[1])
    return inside
