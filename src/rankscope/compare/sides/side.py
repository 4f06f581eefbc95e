"""One of the compared runs, in any form: a run directory, a folder of traces, a report, or the summary in a
baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.pipeline import analyze_windows
from rankscope.analysis.summary.rank_windows import summarise
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.compare.sides.noise import BETWEEN, ON_CPUS
from rankscope.compare.sides.unrecorded import unrecorded_steps
from rankscope.errors import AnalysisError, ConfigError, ForeignFileError
from rankscope.records.manifest import RunManifest
from rankscope.records.rank_window import RankWindow
from rankscope.records.report import ClusterReport
from rankscope.records.run_summary import RunSummary
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit
from rankscope.trace.files.load import load_traces
from rankscope.trace.files.not_used import why_unused

__all__ = ["Side", "from_summaries", "other_size", "read_side", "summary_of"]

F64 = NDArray[np.float64]
Say = Callable[[str], None]


@dataclass(slots=True)
class Side:
    """All data on a run."""

    name: str
    report: ClusterReport
    ranks: list[RankWindow] = field(default_factory=list)
    """Summaries of each rank and window; empty if there is only a report."""
    unrecorded_ms: F64 = field(default_factory=lambda: np.empty(0))
    windows: list[WindowResult] = field(default_factory=list)
    """Windows that can be replayed, which needs the traces."""
    replicates: list[RunSummary] = field(default_factory=list)
    """For a baseline: its other runs."""
    notes: list[str] = field(default_factory=list)

    @property
    def usual_changes(self) -> Mapping[str, float]:
        """What runs of one program differ by, as a share, by the kind of quantity: see :data:`noise.BETWEEN`."""
        return BETWEEN if self.report.run.devices else ON_CPUS

    @property
    def step_ms(self) -> F64:
        """The recorded steps of the job: for each window and step the median over the ranks, ms. The first step of a
        window is left out if there are others."""
        found: list[float] = []
        for window in sorted({(own.attempt, own.window) for own in self.ranks}):
            own = [r.steps.length_ns for r in self.ranks if (r.attempt, r.window) == window and r.steps.length_ns]
            size = min(map(len, own), default=0)
            job = np.median(np.array([steps[:size] for steps in own]), axis=0) / 1e6 if size else np.empty(0)
            found += (job[1:] if len(job) > 1 else job).tolist()
        return np.array(found if self.ranks else self._reported_steps(), np.float64)

    def _reported_steps(self) -> list[float]:
        """Return the same from the report alone, where a step is the host's."""
        windows: dict[tuple[int, int], dict[int, list[float]]] = {}
        for row in self.report.steps:
            windows.setdefault((row.attempt, row.window), {}).setdefault(row.step, []).append(row.duration_ms)
        jobs = [[float(np.median(own)) for _, own in sorted(steps.items())] for _, steps in sorted(windows.items())]
        return [ms for job in jobs for ms in (job[1:] if len(job) > 1 else job)]


def read_side(path: Path, say: Say | None = None) -> Side:
    """Read a run, a folder of traces or a report.

    Args:
        path: a run directory, a folder of traces, or a ``report.json``.
        say: called with a line of text when an action takes long.

    Raises:
        ConfigError: the path does not exist.
        AnalysisError: no trace is usable.
        ForeignFileError: the report or the manifest cannot be read.
    """
    if not path.exists():
        raise ConfigError(f"{path} does not exist; name a run directory, a folder of traces or a report.json")
    if path.is_file() and path.name.endswith(".json") and _is_report(path):
        report = read_record(ClusterReport, path, run_limit(RunDir(path.parent.parent)))
        return Side(path.parent.name if path.name == "report.json" else path.stem, report)
    if say is not None:
        say(f"reading {path}")
    manifest = None
    if RunDir(path).manifest.is_file():
        manifest = read_record(RunManifest, RunDir(path).manifest, run_limit(RunDir(path)))
    load = load_traces([path])
    kept = path / "report" / "report.json"
    if not load.traces and kept.is_file():
        side = Side(path.name, read_record(ClusterReport, kept, run_limit(RunDir(path))))
        side.notes.append(f"{path}: its traces are gone, so that only what its report says is compared")
        side.unrecorded_ms = unrecorded_steps(load.step_logs, side.notes)
        return side
    if not load.traces:
        reasons = why_unused(load.sources)
        raise AnalysisError(f"{path}: no usable trace{': ' + reasons if reasons else ''}")
    report, windows = analyze_windows(load, manifest, hta=False)
    side = Side(path.resolve().name, report, windows=windows)
    side.ranks = [own for window in windows for own in summarise(window)]
    side.unrecorded_ms = unrecorded_steps(load.step_logs, side.notes)
    return side


def _is_report(path: Path) -> bool:
    try:
        read_record(ClusterReport, path, run_limit(RunDir(path.parent.parent)))
    except ForeignFileError:
        return path.name == "report.json"  # and its error is the one to be shown
    return True


def summary_of(side: Side, created: str = "") -> RunSummary:
    """Return the summary of a run that a baseline keeps."""
    return RunSummary(
        name=side.name,
        created=created,
        report=side.report,
        step_ms=[round(ms, 4) for ms in side.unrecorded_ms.tolist()],
        ranks=side.ranks,
    )


def from_summaries(name: str, runs: list[RunSummary]) -> Side:
    """Return a baseline: its latest run is compared, and the others show how much runs of the same program differ.
    Only of the step, the mean of its runs is compared (``compare/steps.py``).

    Raises:
        AnalysisError: there is none.
    """
    if not runs or runs[-1].report is None:
        raise AnalysisError(f"baseline {name} holds no run; `rankscope baseline set {name} RUN` puts one in")
    latest = runs[-1]
    assert latest.report is not None
    return Side(name, latest.report, latest.ranks, np.array(latest.step_ms, np.float64), replicates=runs[:-1])


def other_size(before: Side, after: Side) -> str | None:
    """Return the numbers of ranks in words, if both are known and differ."""
    a, b = before.report.run.world_size, after.report.run.world_size
    return f"{a} ranks against {b}" if a and b and a != b else None
