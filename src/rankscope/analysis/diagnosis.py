"""From the windows of a run to findings and verdict; the report and the merged timeline both use this."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rankscope.analysis.evidence.collect import collect
from rankscope.analysis.evidence.combined_gains import steps_then
from rankscope.analysis.evidence.contention import contention
from rankscope.analysis.evidence.ending import how_it_ended, lost_ranks
from rankscope.analysis.gains.changes import find_changes
from rankscope.analysis.tables.base import Material
from rankscope.analysis.tables.profiling_overhead import recording_overhead_pct
from rankscope.analysis.tables.table import TABLES
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.diagnose.advice.table import advise
from rankscope.diagnose.rules.table import find, open_case
from rankscope.diagnose.verdict import judge
from rankscope.records.evidence import Evidence
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClockReport, ClusterReport, CollectivesReport, RunInfo, Verdict
from rankscope.trace.columns import RankTrace

__all__ = ["Failed", "diagnose", "empty_report", "guarded", "verdict_of"]

Failed = Callable[[str, Exception], None]
"""Called with the name of a stage that raised an error, and the error."""
_DECIDE = ("ranks", "idle", "modules", "health", "efficiency")
"""Tables that a verdict depends on. Device memory adds findings only, and its snapshots are slow to read."""


def empty_report(manifest: RunManifest | None) -> ClusterReport:
    """Return a report to be filled in, whose verdict abstains."""
    return ClusterReport(
        run=RunInfo(source="traces" if manifest is None else "run"),
        ranks=[],
        clock=ClockReport(method="none"),
        collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
        verdict=Verdict(kind="insufficient_data", sentence="Not enough data for a verdict."),
    )


def diagnose(
    report: ClusterReport, windows: Sequence[WindowResult], manifest: RunManifest | None, failed: Failed
) -> None:
    """Add findings, verdict and replayed gains to a report whose tables are filled."""
    evidence = Evidence(ranks=[r.rank for r in report.ranks if r.compute_pct is not None])
    with guarded("diagnosis", failed):
        records = [record for window in manifest.windows for record in window.records] if manifest else []
        overhead = report.run.recording_overhead_pct
        evidence = collect(windows, report.ranks, report.idle, report.modules, overhead, records)
        evidence.health, evidence.memory, evidence.efficiency = report.health, report.memory, report.efficiency
        evidence.run_steps, evidence.world_size = report.pulse, report.run.world_size
        evidence.lost = lost_ranks(report.ranks)
        evidence.ended = how_it_ended(manifest, report.sources)
        report.what_if = evidence.what_if
    with guarded("changes", failed):
        evidence.changes = find_changes(windows, report.ranks, evidence.step_ms, evidence.uses)
    with guarded("contention", failed):
        evidence.contention = contention(windows, manifest)
    with guarded("verdict", failed):
        case = open_case(evidence)
        report.findings = find(case, lambda kind, error: failed(f"rule {kind}", error))
        report.actions = advise(case, lambda code, error: failed(f"advice {code}", error))
        report.verdict = judge(case, report.actions)
    with guarded("gains together", failed):
        left = steps_then(report.actions, windows, report.verdict.step_ms)
        for action, ms in zip(report.actions, left, strict=True):
            action.step_then_ms = ms


def verdict_of(
    windows: Sequence[WindowResult], traces: Sequence[RankTrace], manifest: RunManifest | None, failed: Failed
) -> Verdict:
    """Return the verdict of the report of these windows, without making the report.

    Args:
        windows: of the run, compared.
        traces: in these windows.
        manifest: of the run, if there is one.
        failed: called if a stage raises an error; the verdict then abstains or is based on the other stages.
    """
    report = empty_report(manifest)
    material = Material(windows=windows, traces=traces, manifest=manifest)
    for table in TABLES:
        if table.field in _DECIDE:
            with guarded(table.field, failed):
                setattr(report, table.field, table.rows(material))
    with guarded("profiling overhead", failed):
        report.run.recording_overhead_pct = recording_overhead_pct(windows, manifest)
    diagnose(report, windows, manifest, failed)
    return report.verdict


@contextmanager
def guarded(where: str, failed: Failed) -> Iterator[None]:
    """Report an error of one stage to ``failed`` instead of raising it."""
    try:
        yield
    except Exception as error:
        failed(where, error)
