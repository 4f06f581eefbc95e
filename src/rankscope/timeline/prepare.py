"""From loaded traces to what the timeline shows: all windows on one clock, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.evidence.collect import collect
from rankscope.analysis.evidence.contention import contention
from rankscope.analysis.matching.clocks import Clocks
from rankscope.analysis.tables import summary
from rankscope.analysis.tables.profiling_overhead import recording_overhead_pct
from rankscope.analysis.tables.run_info import complete_ranks
from rankscope.analysis.windows.all_windows import analyse_windows, usable
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.diagnose.rules.table import find, open_case
from rankscope.diagnose.verdict import judge
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
    """Zero of the timeline: the earliest aligned event, on the clock of the first rank of the alignment."""
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
    return PreparedTimeline(windows, base, _verdict(windows, manifest, notes), notes)


def _verdict(windows: list[WindowResult], manifest: RunManifest | None, notes: list[str]) -> Verdict:
    try:
        traces = [v.trace for w in windows for v in w.views]
        ranks = complete_ranks(summary.rank_summaries(windows), traces, manifest)
        overhead = recording_overhead_pct(windows, manifest)
        evidence = collect(windows, ranks, summary.idle_rows(windows), (), overhead)
        evidence.contention = contention(windows, manifest)
        case = open_case(evidence)
        return judge(case, find(case))
    except Exception as error:  # the timeline is complete without a verdict
        notes.append(f"no straggler is marked: {type(error).__name__}: {error}")
        return Verdict(kind="insufficient_data")


def on_axis(clocks: Clocks, column: int, own: I64) -> I64:
    """Own-clock times on the common clock, whole nanoseconds. Keeps order, and lengths where there is no drift."""
    drift = np.round(float(clocks.drift[column]) * (own - clocks.origin)).astype(np.int64)
    return np.asarray(own + round(float(clocks.offset[column])) + drift)
