"""The runs of a baseline in order: their steps, where they changed for good, and whether they creep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.compare.sides.noise import BETWEEN, usual
from rankscope.compare.sides.side import from_summaries
from rankscope.errors import AnalysisError
from rankscope.records.run_summary import RunSummary
from rankscope.statistics.changes import Change, changes

__all__ = ["History", "history"]


@dataclass(frozen=True, slots=True)
class History:
    """Columns have an entry a run."""

    name: str
    runs: list[str]
    created: list[str]
    step_ms: list[float | None]
    verdicts: list[str]
    findings: list[list[str]]
    """Titles of what each run's report found."""
    changes: list[Change]
    creep: float | None
    """By what share the last run is slower than the oldest that was accepted; None where one has no step time."""
    note: str = ""

    @property
    def creeps(self) -> bool:
        """Whether that is more than runs of one program differ by, although no single change need be."""
        return self.creep is not None and self.creep > BETWEEN["host_bound"]


def history(name: str, runs: Sequence[RunSummary]) -> History:
    """Look back over the runs of a baseline, the oldest first."""
    steps = [_step(run) for run in runs]
    note = ""
    try:
        found = changes([np.nan if step is None else step for step in steps])
    except AnalysisError as error:
        found, note = [], str(error)
    first, last = steps[0], steps[-1]
    return History(
        name=name,
        runs=[run.name for run in runs],
        created=[run.created for run in runs],
        step_ms=steps,
        verdicts=[str(run.report.verdict.kind) if run.report else "" for run in runs],
        findings=[[finding.title for finding in run.report.findings] if run.report else [] for run in runs],
        changes=found,
        creep=(last - first) / first if first and last is not None else None,
        note=note,
    )


def _step(run: RunSummary) -> float | None:
    """Unrecorded steps where there are any, else recorded ones: within a history of one kind of job either."""
    if run.step_ms:
        return usual(np.array(run.step_ms))
    if run.report is None:
        return None
    recorded = usual(from_summaries(run.name, [run]).step_ms)
    return recorded if recorded is not None else run.report.verdict.step_ms
