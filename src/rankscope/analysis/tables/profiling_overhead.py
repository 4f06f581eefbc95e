"""Profiling overhead: steps before, in and after the windows, and how long the profiler blocked a training thread."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.manifest import RunManifest
from rankscope.records.report import RunInfo
from rankscope.statistics.step_time import usual_step_ms

__all__ = ["add_profiling_overhead", "recording_overhead_pct"]

_SETTLING, _ENOUGH = 2, 8
"""Steps after a window that still include the cost of closing it, and number of steps needed for a median."""
_AHEAD = 0.5
"""A host whose steps are shorter than this share of its device's runs ahead of it. If half the time before the window
was spent in a few steps without a synchronisation interval, the usual step before the window is unknown."""


def add_profiling_overhead(info: RunInfo, windows: Sequence[WindowResult], manifest: RunManifest | None) -> None:
    """Set ``recording_overhead_pct``, ``residue_pct`` and ``longest_stall_ms``, if the ranks measured them."""
    if manifest is None:
        return
    info.recording_overhead_pct = recording_overhead_pct(windows, manifest)
    info.residue_pct = _more(_overhead_after(manifest))
    opened_closed = [r.steps for w in manifest.windows for r in w.records]
    info.longest_stall_ms = max(
        (ms for s in opened_closed for ms in (s.open_ms, s.close_ms) if ms is not None), default=None
    )


def recording_overhead_pct(windows: Sequence[WindowResult], manifest: RunManifest | None) -> float | None:
    """Return by how much recorded steps are longer than those before, per cent; None if it was not measured.

    It is the median over ranks and windows. Without a manifest there are no steps before a window to compare with.
    """
    if manifest is None:
        return None
    recorded: dict[tuple[int, int | None, int], float] = {
        (w.attempt, w.window, v.rank): float(np.median(own)) / 1e6
        for w in windows
        for v, own in zip(w.views, w.lengths, strict=True)
        if len(own)
    }
    found = []
    for record in (r for w in manifest.windows for r in w.records):
        before, on_host = usual_step_ms(record.steps.before_ms), usual_step_ms(record.steps.inside_ms)
        inside = recorded.get((record.attempt, record.window, record.rank), on_host)
        ahead = on_host < _AHEAD * inside and fmean(record.steps.before_ms or [0.0]) > before / _AHEAD
        if before and inside and not ahead:
            found.append(inside / before)
    return _more(found)


def _overhead_after(manifest: RunManifest) -> list[float]:
    """Return for each rank the ratio of the usual step after its last window to the one before it."""
    before = {(r.attempt, r.rank): r.steps.before_ms for w in manifest.windows for r in w.records if r.trace}
    found = []
    for process in manifest.lives:
        earlier, later = before.get((process.attempt, process.rank), []), process.steps.after_ms[_SETTLING:]
        if min(len(earlier), len(later)) < _ENOUGH:
            continue
        if first := usual_step_ms(earlier):
            found.append(usual_step_ms(later) / first)
    return found


def _more(ratios: Sequence[float]) -> float | None:
    return 100.0 * (float(np.median(ratios)) - 1.0) if ratios else None
