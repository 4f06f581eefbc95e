"""From loaded traces to the content of the timeline: all windows on one clock, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.diagnosis import verdict_of
from rankscope.analysis.windows.all_windows import analyse_windows, usable
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.errors import AnalysisError
from rankscope.records.manifest import RunManifest
from rankscope.records.report import Verdict
from rankscope.trace.files.load import LoadResult

__all__ = ["PreparedTimeline", "on_axis", "prepare_timeline"]

I64 = NDArray[np.int64]


@dataclass(slots=True)
class PreparedTimeline:
    """All windows of a run, each with the clocks of its own ranks."""

    windows: list[WindowResult]
    base_ns: int
    """Origin of the timeline: the earliest aligned event, on the clock of the first rank of the alignment."""
    verdict: Verdict
    notes: list[str] = field(default_factory=list)


def prepare_timeline(load: LoadResult, manifest: RunManifest | None = None) -> PreparedTimeline:
    """Align clocks, match collectives and find the verdict, as ``analyze`` does.

    Raises:
        AnalysisError: no trace is usable.
    """
    traces = usable(load.traces)
    if not traces:
        raise AnalysisError("no usable trace; give a run directory or a folder of Kineto traces whose ranks are known")
    notes: list[str] = []

    def left_out(where: str, error: Exception) -> None:
        notes.append(f"{where} is left out: {type(error).__name__}: {error}")

    windows = analyse_windows(traces, manifest, left_out)
    if not windows:
        raise AnalysisError(f"no window could be compared: {notes[0]}")
    notes += [note for window in windows for note in window.notes]
    notes += [
        f"attempt {w.attempt}, window {w.window}: the clocks could not be aligned and are shown as they are"
        for w in windows
        if w.clocks.method == "none" and len(w.views) > 1
    ]
    base = min(int(on_axis(w.clocks, c, v.trace.events.start[:1])[0]) for w in windows for c, v in enumerate(w.views))
    compared = [v.trace for w in windows for v in w.views]
    return PreparedTimeline(windows, base, verdict_of(windows, compared, manifest, left_out), notes)


def on_axis(clocks: Clocks, column: int, own: I64) -> I64:
    """Convert own-clock times to the common clock, whole nanoseconds. The order is kept, and so are durations without
    drift."""
    drift = np.round(float(clocks.drift[column]) * (own - clocks.origin)).astype(np.int64)
    return np.asarray(own + round(float(clocks.offset[column])) + drift)
