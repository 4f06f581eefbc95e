"""From loaded traces to the cluster report: windows one by one, then pooled, then judged.

Each stage is guarded. What fails is named in ``ClusterReport.errors``, and the rest of the report stands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rankscope.analysis.evidence.collect import collect
from rankscope.analysis.matching.host_clocks import host_clocks
from rankscope.analysis.tables import summary
from rankscope.analysis.tables.health import health_rows
from rankscope.analysis.tables.kernels import kernel_rows
from rankscope.analysis.tables.launch_queue import launch_queues
from rankscope.analysis.tables.memory import memory_rows
from rankscope.analysis.tables.modules import module_rows
from rankscope.analysis.tables.profiling_overhead import add_profiling_overhead
from rankscope.analysis.tables.run_info import complete_ranks, run_info
from rankscope.analysis.tables.run_steps import read_pulses
from rankscope.analysis.windows.analyse import WindowResult, analyse_window
from rankscope.diagnose.rules.table import find
from rankscope.diagnose.verdict import judge
from rankscope.errors import AnalysisError
from rankscope.records.evidence import Evidence
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClockReport, ClusterReport, CollectivesReport, ReportError, Verdict
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.load import LoadResult

__all__ = ["analyze", "stages"]

Progress = Callable[[str], None]


def stages(load: LoadResult, *, hta: bool) -> int:
    """How often :func:`analyze` tells its progress: for each window, and for HolisticTraceAnalysis' numbers."""
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
        progress: called with a line of text as work goes on.

    Raises:
        AnalysisError: no trace is usable and no manifest says anything either.
    """
    say = progress or (lambda _text: None)
    errors: list[ReportError] = []
    traces = [t for t in load.traces if t.rank is not None and len(t.events)]
    if not traces and manifest is None:
        reasons = {s.reason for s in load.sources if s.reason} | {"the rank is not known" for _ in load.unassigned}
        raise AnalysisError(
            "no usable trace"
            + (f": {'; '.join(sorted(reasons)[:3])}" if reasons else "")
            + ". Give a run directory, a folder of Kineto traces, or files named like rank_0.json.gz"
        )
    windows = _windows(traces, manifest, errors, say)
    report = ClusterReport(
        run=run_info(traces, manifest),
        ranks=[],
        clock=ClockReport(method="none"),
        collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
        verdict=Verdict(kind="insufficient_data", sentence="Not enough data for a verdict."),
        errors=errors,
        sources=load.sources,
    )
    report.run.notes += [note for w in windows for note in w.notes]
    with _guard("own cost", errors):
        add_profiling_overhead(report.run, windows, manifest)
    with _guard("ranks", errors):
        report.ranks = complete_ranks(summary.rank_summaries(windows), traces, manifest)
    with _guard("clock", errors):
        report.clock = summary.clock_report(windows)
    with _guard("collectives", errors):
        report.collectives = summary.collectives_report(windows)
    with _guard("idle", errors):
        report.idle = summary.idle_rows(windows)
    with _guard("steps", errors):
        report.steps = summary.step_rows(windows)
    with _guard("groups", errors):
        report.groups = summary.group_rows(windows)
    with _guard("modules", errors):
        report.modules = module_rows(windows)
    with _guard("queues", errors):
        report.queues = launch_queues(windows)
    with _guard("kernels", errors):
        report.kernels = kernel_rows([v for w in windows for v in w.views])
    with _guard("health", errors):
        report.health = health_rows(r for w in manifest.windows for r in w.records) if manifest is not None else []
    with _guard("memory", errors):
        report.memory, faults = memory_rows(traces, load.snapshots)
        errors += [ReportError(where="memory", message=fault) for fault in faults]
    with _guard("pulse", errors):
        report.pulse = read_pulses(load.pulses, report.run.world_size)
    if hta and traces:
        with _guard("hta", errors):
            from rankscope.analysis.hta.adapter import run_hta

            say("computing the breakdowns of HolisticTraceAnalysis")
            report.hta, failed = run_hta(traces)
            errors += failed
    evidence = Evidence(ranks=[r.rank for r in report.ranks if r.compute_pct is not None])
    with _guard("diagnosis", errors):
        evidence = collect(windows, report.ranks, report.idle, report.modules, report.run.recording_overhead_pct)
        evidence.health, evidence.memory = report.health, report.memory
        report.what_if = evidence.what_if
    with _guard("findings", errors):
        report.findings = find(evidence)
    with _guard("verdict", errors):
        report.verdict = judge(evidence, report.findings)
    return report


def _windows(
    traces: Sequence[RankTrace], manifest: RunManifest | None, errors: list[ReportError], say: Progress
) -> list[WindowResult]:
    grouped: dict[tuple[int, int], list[RankTrace]] = defaultdict(list)
    for trace in traces:
        grouped[(trace.attempt, trace.window)].append(trace)
    results = []
    for (attempt, window), members in sorted(grouped.items()):
        say(f"comparing {len(members)} ranks of attempt {attempt}, window {window}")
        with _guard(f"attempt {attempt}, window {window}", errors):
            results.append(
                analyse_window(sorted(members, key=lambda t: t.rank or 0), host_clocks(manifest, attempt, window))
            )
    return results


@contextmanager
def _guard(where: str, errors: list[ReportError]) -> Iterator[None]:
    """Turn any failure of one analysis into an entry of the report."""
    try:
        yield
    except Exception as error:
        errors.append(ReportError(where=where, message=f"{type(error).__name__}: {error}"))
