"""What a table of the report is: the field that it fills, and the function that makes its rows."""

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
    """What tables are made of."""

    windows: Sequence[WindowResult]
    traces: Sequence[RankTrace]
    """Usable traces of known ranks, those of windows that could not be compared included."""
    manifest: RunManifest | None = None
    """Of the run, where there is one."""
    world_size: int | None = None
    sources: Sequence[SourceFile] = ()
    """Every file that was offered, and what became of it."""
    snapshots: Sequence[Path] = ()
    """Files of PyTorch's memory history."""
    step_logs: Sequence[Path] = ()
    """Files with the time of every step of one rank."""
    errors: list[ReportError] = field(default_factory=list)
    """A table that can leave out a file of its own accord says so here."""

    @property
    def views(self) -> list[RankView]:
        """Each rank in each window."""
        return [view for window in self.windows for view in window.views]


@dataclass(frozen=True, slots=True)
class Table:
    """One field of :class:`~rankscope.records.report.ClusterReport` that is measured."""

    field: str
    """Its name. It also says in the report which part failed."""
    rows: Callable[[Material], Any]
    """Makes the value of the field. Where it raises an error, the field keeps its default value."""
