"""Region of the script in which a late rank spends most of its extra time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from rankscope.analysis.operators.suspects import worst_window
from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.intervals import Spans
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.stragglers.kernel_table import kernels_of
from rankscope.analysis.tables.regions import own_regions
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.causes.table import DEVICE_CAUSES
from rankscope.records.evidence import Suspect
from rankscope.records.from_script import RegionExcess

__all__ = ["name_regions"]

MOST = 0.5
"""Least share of the extra time that a region must hold."""


def name_regions(suspects: Sequence[Suspect], windows: Sequence[WindowResult]) -> None:
    """Set ``regions`` of the candidate ranks with a cost that ran regions of the script.

    Args:
        suspects: candidate ranks; those whose operators were compared, or whose cause is known.
        windows: those in which they are late.
    """
    for suspect in suspects:
        window, column = worst_window(windows, suspect.rank)
        if window is None or not window.plan.peers:
            continue
        view = window.views[column]
        peers = [c for c in window.plan.peers[column] if c != column and c < len(window.profiles)]
        regions = own_regions(view)
        if not regions or not peers:
            continue
        for cause in suspect.explained:
            found = _most(window, column, peers, regions, cause)
            if found is not None:
                suspect.regions[cause] = found


def _most(
    window: WindowResult, column: int, peers: Sequence[int], regions: dict[str, Spans], cause: str
) -> RegionExcess | None:
    """Return the shortest region that holds most of the time a cause takes beyond the peers.

    A region must hold more of it than of the step, else it says nothing about the place.
    """
    view = window.views[column]
    own = _of_cause(window, column, cause)
    others = [(_of_cause(window, c, cause), own_regions(window.views[c])) for c in peers]
    extra = own.within(None) - median(other.within(None) for other, _ in others)
    if extra <= 0:
        return None
    for name in sorted(regions, key=lambda name: intervals.measure(regions[name])):
        ms = own.within(regions[name])
        usual = median(other.within(theirs.get(name, intervals.EMPTY)) for other, theirs in others)
        share = (ms - usual) / extra
        of_step = intervals.measure(regions[name]) / max(view.end - view.start, 1)
        if share > max(MOST, of_step):
            return RegionExcess(region=name, ms=ms, peers_ms=usual)
    return None


class _Time:
    """Time of one cause on one rank: of the host, or of the device by the launches."""

    def __init__(self, starts: intervals.I64, ns: intervals.I64, spans: Spans | None, steps: int) -> None:
        self._starts, self._ns, self._spans, self._steps = starts, ns, spans, max(steps, 1)

    def within(self, region: Spans | None) -> float:
        """Return ms per step; None for all of it."""
        if self._spans is not None:
            ns = intervals.measure(self._spans if region is None else intervals.intersect(self._spans, region))
        else:
            ns = int(self._ns.sum() if region is None else self._ns[intervals.contains(region, self._starts)].sum())
        return ns / 1e6 / self._steps


def _of_cause(window: WindowResult, column: int, cause: str) -> _Time:
    view, nothing = window.views[column], np.empty(0, np.int64)
    if cause not in DEVICE_CAUSES:
        return _Time(nothing, nothing, window.profiles[column].spans.get(cause, intervals.EMPTY), view.steps)
    if not view.device:
        return _Time(nothing, nothing, view.compute, view.steps)
    return _Time(*_launched(view), None, view.steps)


def _launched(view: RankView) -> tuple[intervals.I64, intervals.I64]:
    """Return the launches of the kernels of recorded steps, and what they take, ns."""
    events = view.trace.events
    rows = kernels_of(view)
    return events.start[events.launch[rows]], events.duration[rows]
