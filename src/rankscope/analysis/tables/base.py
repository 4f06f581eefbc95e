"""Definition of a table of the report: the field that it fills, and the function that makes its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope.analysis.rank.view import RankView
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ReportError, SourceFile
from rankscope.trace.columns import RankTrace

__all__ = ["Material", "Table"]


@dataclass(kw_only=True, slots=True)
class Material:
    """Input of the tables."""

    windows: Sequence[WindowResult]
    traces: Sequence[RankTrace]
    """Usable traces of known ranks, including those of windows that could not be compared."""
    manifest: RunManifest | None = None
    """Manifest of the run, if there is one."""
    world_size: int | None = None
    sources: Sequence[SourceFile] = ()
    """Every file that was offered, and its result."""
    snapshots: Sequence[Path] = ()
    """Files with PyTorch's memory history."""
    step_logs: Sequence[Path] = ()
    """Files with the time of every step of one rank."""
    errors: list[ReportError] = field(default_factory=list)
    """A table that leaves out a file reports it here."""

    @property
    def views(self) -> list[RankView]:
        """Each rank in each window."""
        return [view for window in self.windows for view in window.views]


@dataclass(frozen=True, slots=True)
class Table:
    """One measured field of :class:`~rankscope.records.report.ClusterReport`."""

    field: str
    """Name of the field. It also identifies the table in the report's errors."""
    rows: Callable[[Material], Any]
    """Computes the value of the field. If it raises an error, the field keeps its default value."""
