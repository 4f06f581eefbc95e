"""The runs of a baseline in order: their steps, permanent changes, and slow creep."""

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
    """Columns have one entry per run."""

    name: str
    runs: list[str]
    created: list[str]
    step_ms: list[float | None]
    verdicts: list[str]
    findings: list[list[str]]
    """Titles of the findings in each run's report."""
    changes: list[Change]
    creep: float | None
    """Share by which the last run is slower than the oldest that was accepted; None if one has no step time."""
    note: str = ""

    @property
    def creeps(self) -> bool:
        """Whether the creep exceeds the difference between runs of one program, even if no single change does."""
        return self.creep is not None and self.creep > BETWEEN["host_bound"]


def history(name: str, runs: Sequence[RunSummary]) -> History:
    """Evaluate the runs of a baseline, given the oldest first."""
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
    """Return unrecorded steps if there are any, else recorded ones; in the history of one job it is always the same
    kind."""
    if run.step_ms:
        return usual(np.array(run.step_ms))
    if run.report is None:
        return None
    recorded = usual(from_summaries(run.name, [run]).step_ms)
    return recorded if recorded is not None else run.report.verdict.step_ms
