"""From loaded traces to the cluster report: each window, then the tables over all windows, then the diagnosis.

Every stage is guarded. A failure is listed in ``ClusterReport.errors``, and the rest of the report is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from rankscope import plugins
from rankscope.analysis.between_windows import add_between_windows
from rankscope.analysis.diagnosis import diagnose, empty_report, guarded
from rankscope.analysis.standstill import add_standstill
from rankscope.analysis.tables.base import Material
from rankscope.analysis.tables.profiling_overhead import add_profiling_overhead
from rankscope.analysis.tables.run_info import run_info
from rankscope.analysis.tables.table import TABLES
from rankscope.analysis.tables.throughput import throughput
from rankscope.analysis.tables.unknown_kernels import unknown_kernels
from rankscope.analysis.windows.all_windows import analyse_windows, usable
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.errors import AnalysisError
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport, ReportError
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.load import LoadResult
from rankscope.trace.files.not_used import listed, why_unused

__all__ = ["analyze", "analyze_windows", "stages"]

Progress = Callable[[str], None]

HTA_RANKS = 64
"""Limit because they are computed per rank and read per rank, and are not read for more ranks."""


def stages(load: LoadResult, *, hta: bool | Literal["all"]) -> int:
    """Return how often :func:`analyze` reports progress: once per window, and once for HolisticTraceAnalysis'
    numbers."""
    return len({(trace.attempt, trace.window) for trace in load.traces}) + bool(hta)


def analyze(
    load: LoadResult,
    manifest: RunManifest | None = None,
    *,
    hta: bool | Literal["all"] = True,
    progress: Progress | None = None,
) -> ClusterReport:
    """Analyse loaded traces.

    Args:
        load: traces, and the result of every file.
        manifest: of the run, if there is one. It contains the missing ranks and the cost of recording.
        hta: also compute HolisticTraceAnalysis' numbers (see docs/hta.md): above :data:`HTA_RANKS`
            ranks for the named ranks and one other, with ``all`` for every rank.
        progress: called with a line of text for each stage.

    Raises:
        AnalysisError: no trace is usable and there is no manifest with results either.
    """
    return analyze_windows(load, manifest, hta=hta, progress=progress)[0]


def analyze_windows(
    load: LoadResult,
    manifest: RunManifest | None = None,
    *,
    hta: bool | Literal["all"] = True,
    progress: Progress | None = None,
) -> tuple[ClusterReport, list[WindowResult]]:
    """As :func:`analyze`, and also return the windows of the report, which can be replayed again and summarised."""
    errors: list[ReportError] = []

    def failed(where: str, error: Exception) -> None:
        errors.append(ReportError(where=where, message=f"{type(error).__name__}: {error}"))

    traces = usable(load.traces)
    if not traces and manifest is None:
        raise AnalysisError(_nothing_usable(load))
    windows = analyse_windows(traces, manifest, failed, progress)
    report = empty_report(manifest)
    report.errors = errors
    report.sources, left_out = listed(load.sources)
    with guarded("run", failed):
        report.run = run_info(traces, manifest)
    report.run.notes[:0] = [*load.notes, *([left_out] if left_out else [])]
    report.run.notes += [_without_window(note, w, windows) for w in windows for note in w.notes]
    with guarded("unknown kernels", failed):
        report.run.notes += unknown_kernels([v for w in windows for v in w.views])
    with guarded("profiling overhead", failed):
        add_profiling_overhead(report.run, windows, manifest)
    material = Material(
        windows=windows,
        traces=traces,
        manifest=manifest,
        world_size=report.run.world_size,
        sources=load.sources,
        snapshots=load.snapshots,
        step_logs=load.step_logs,
        errors=errors,
    )
    for table in TABLES:
        with guarded(table.field, failed):
            setattr(report, table.field, table.rows(material))
    diagnose(report, windows, manifest, failed)
    with guarded("throughput", failed):
        report.throughput = throughput(report, manifest)
    if hta and traces:
        with guarded("hta", failed):
            _add_hta(report, traces if hta == "all" else chosen(report, traces), progress)
    report.hang = manifest.hang if manifest is not None else None
    with guarded("between windows", failed):
        on_cpus, shared = _trains_on_cpus(report), _share_devices(manifest)
        add_between_windows(report, load.step_logs, on_host=on_cpus, shared=shared)
    add_standstill(report.verdict, report.hang, manifest.exit_code if manifest is not None else None)
    report.run.notes += plugins.notes()
    return report, windows


def _without_window(note: str, window: WindowResult, windows: Sequence[WindowResult]) -> str:
    """Remove the recording's name from a note if there is only one recording."""
    where = f"attempt {window.attempt}, window {window.window}: "
    return note.removeprefix(where) if len(windows) == 1 else note


def _share_devices(manifest: RunManifest | None) -> bool:
    """Whether two ranks of an attempt have trained on one device."""
    lives = manifest.lives if manifest is not None else []
    used = [(life.attempt, life.host, life.device_uuid) for life in lives if life.device_uuid]
    return len(used) > len(set(used))


def _trains_on_cpus(report: ClusterReport) -> bool:
    devices = [*report.run.devices, *(rank.device or "cpu" for rank in report.ranks)]
    return all(device.startswith("cpu") for device in devices)


def _nothing_usable(load: LoadResult) -> str:
    reasons = why_unused(load.sources)
    return (
        "no usable trace"
        + (f": {reasons}" if reasons else "")
        + ". Give a run directory, a folder of Kineto traces, or files named like rank_0.json.gz"
    )


def chosen(report: ClusterReport, traces: Sequence[RankTrace]) -> Sequence[RankTrace]:
    """Return the traces for which HolisticTraceAnalysis' numbers are computed: with many ranks, those of the named
    ranks and one for comparison. The report says so."""
    ranks = sorted({trace.rank for trace in traces if trace.rank is not None})
    if len(ranks) <= HTA_RANKS:
        return traces
    late = set(report.verdict.ranks[:HTA_RANKS])
    kept = late | set([rank for rank in ranks if rank not in late][:1])
    report.run.notes.append(
        f"the numbers of HolisticTraceAnalysis are of rank {', '.join(map(str, sorted(kept)))} only; "
        "`rankscope analyze --hta-all` has those of all ranks"
    )
    return [trace for trace in traces if trace.rank in kept]


def _add_hta(report: ClusterReport, traces: Sequence[RankTrace], progress: Progress | None) -> None:
    from rankscope.analysis.hta.adapter import run_hta  # imports pandas

    if progress is not None:
        progress("adding the numbers of HolisticTraceAnalysis")
    report.hta, failures = run_hta(traces)
    report.errors += failures
