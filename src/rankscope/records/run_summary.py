"""Summary of a run, kept to compare others with it: the entry of a baseline."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.records.rank_window import SUMMARY_VERSION, RankWindow
from rankscope.records.report import ClusterReport

__all__ = ["RunSummary"]


@dataclass(kw_only=True)
class RunSummary:
    """A run without its traces."""

    name: str
    created: str = ""
    """When the run ended, ISO 8601 in UTC; empty if unknown."""
    report: ClusterReport | None = None
    step_ms: list[float] = field(default_factory=list)
    """The job's steps that no rank recorded, in order. Each is a mean over the steps from one synchronisation of the
    host with its device to the next. Empty without step logs."""
    ranks: list[RankWindow] = field(default_factory=list)
    schema_version: str = SUMMARY_VERSION
