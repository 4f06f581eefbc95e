"""From loaded traces to the cluster report: windows one by one, then the tables of all of them, then the diagnosis.

Every stage is guarded. What fails is named in ``ClusterReport.errors``, and the rest of the report is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rankscope import plugins
from rankscope.analysis.evidence.collect import collect
from rankscope.analysis.evidence.contention import contention
from rankscope.analysis.tables.base import Material
from rankscope.analysis.tables.profiling_overhead import add_profiling_overhead
from rankscope.analysis.tables.run_info import run_info
from rankscope.analysis.tables.table import TABLES
from rankscope.analysis.tables.unknown_kernels import unknown_kernels
from rankscope.analysis.windows.all_windows import analyse_windows, usable
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.diagnose.rules.table import find, open_case
from rankscope.diagnose.verdict import judge
from rankscope.errors import AnalysisError
from rankscope.records.evidence import Evidence
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClockReport, ClusterReport, CollectivesReport, ReportError, RunInfo, Verdict
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.load import LoadResult

__all__ = ["analyze", "stages"]

Progress = Callable[[str], None]
Failed = Callable[[str, Exception], None]


def stages(load: LoadResult, *, hta: bool) -> int:
    """Return how often :func:`analyze` reports progress: once a window, and once for HolisticTraceAnalysis' numbers."""
    return len({(trace.attempt, trace.window) for trace in load.traces}) + hta


def analyze(
    load: LoadResult,
    manifest: RunManifest | None = None,
    *,
    hta: bool = True,
    progress: Progress | None = None,
) -> ClusterReport:
    """Analyse loaded traces.

    Args:
        load: traces and the fate of every file.
        manifest: of the run, where there is one: it knows the missing ranks and the cost of recording.
        hta: also give HolisticTraceAnalysis' numbers (computed by ``breakdowns``, see docs/hta.md).
        progress: called with a line of text for each stage.

    Raises:
        AnalysisError: no trace is usable and no manifest says anything either.
    """
    errors: list[ReportError] = []

    def failed(where: str, error: Exception) -> None:
        errors.append(ReportError(where=where, message=f"{type(error).__name__}: {error}"))

    traces = usable(load.traces)
    if not traces and manifest is None:
        raise AnalysisError(_nothing_usable(load))
    windows = analyse_windows(traces, manifest, failed, progress)
    report = ClusterReport(
        run=RunInfo(source="traces" if manifest is None else "run"),
        ranks=[],
        clock=ClockReport(method="none"),
        collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
        verdict=Verdict(kind="insufficient_data", sentence="Not enough data for a verdict."),
        errors=errors,
        sources=load.sources,
    )
    with _guard("run", failed):
        report.run = run_info(traces, manifest)
    report.run.notes[:0] = load.notes
    report.run.notes += [note for w in windows for note in w.notes]
    with _guard("unknown kernels", failed):
        report.run.notes += unknown_kernels([v for w in windows for v in w.views])
    with _guard("profiling overhead", failed):
        add_profiling_overhead(report.run, windows, manifest)
    material = Material(
        windows=windows,
        traces=traces,
        manifest=manifest,
        world_size=report.run.world_size,
        snapshots=load.snapshots,
        step_logs=load.pulses,
        errors=errors,
    )
    for table in TABLES:
        with _guard(table.field, failed):
            setattr(report, table.field, table.rows(material))
    if hta and traces:
        with _guard("hta", failed):
            _add_hta(report, traces, progress)
    _diagnose(report, windows, manifest, failed)
    report.run.notes += plugins.notes()
    return report


def _nothing_usable(load: LoadResult) -> str:
    reasons = {s.reason for s in load.sources if s.reason}
    return (
        "no usable trace"
        + (f": {'; '.join(sorted(reasons)[:3])}" if reasons else "")
        + ". Give a run directory, a folder of Kineto traces, or files named like rank_0.json.gz"
    )


def _add_hta(report: ClusterReport, traces: Sequence[RankTrace], progress: Progress | None) -> None:
    from rankscope.analysis.hta.adapter import run_hta  # imports pandas

    if progress is not None:
        progress("computing the breakdowns of HolisticTraceAnalysis")
    report.hta, failures = run_hta(traces)
    report.errors += failures


def _diagnose(
    report: ClusterReport, windows: Sequence[WindowResult], manifest: RunManifest | None, failed: Failed
) -> None:
    evidence = Evidence(ranks=[r.rank for r in report.ranks if r.compute_pct is not None])
    with _guard("diagnosis", failed):
        evidence = collect(windows, report.ranks, report.idle, report.modules, report.run.recording_overhead_pct)
        evidence.health, evidence.memory = report.health, report.memory
        report.what_if = evidence.what_if
    with _guard("contention", failed):
        evidence.contention = contention(windows, manifest)
    with _guard("verdict", failed):
        case = open_case(evidence)
        report.findings = find(case, lambda kind, error: failed(f"rule {kind}", error))
        report.verdict = judge(case, report.findings)


@contextmanager
def _guard(where: str, failed: Failed) -> Iterator[None]:
    """Turn any error of one stage into an entry of the report."""
    try:
        yield
    except Exception as error:
        failed(where, error)
