"""The report's curve of every step of the run."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["RankStepTimes", "RecordedRange", "RunSteps", "StepBucket"]


@dataclass(kw_only=True)
class StepBucket:
    """Neighbouring steps of the whole run, recorded or not. None where no step was timed."""

    first: int
    last: int
    step_ms: float | None = None
    """Median over the ranks of their mean step."""
    slowest_ms: float | None = None
    """The longest single step, and whose it was."""
    slowest_rank: int | None = None
    input_ms: float | None = None
    """Mean time in the data loader of the rank that waited most for it, and which rank that was."""
    input_rank: int | None = None


@dataclass(kw_only=True)
class RankStepTimes:
    """One rank over the unprofiled steps of the whole run: no rank recorded, nor closed a window."""

    rank: int
    steps: int = 0
    median_ms: float | None = None
    p99_ms: float | None = None
    longest_ms: float | None = None
    longest_step: int | None = None
    input_pct: float | None = None
    gc_ms_per_step: float | None = None
    drift_pct: float | None = None
    """Median of the last quarter of the steps against that of the first."""


@dataclass(kw_only=True)
class RecordedRange:
    """Steps in which a rank recorded, warm-up included; both ends are inside."""

    first: int
    last: int


@dataclass(kw_only=True)
class RunSteps:
    """Step times of the whole last attempt."""

    attempt: int
    steps: int
    unprofiled_steps: int = 0
    """Timed ones, of the rank that has most."""
    median_ms: float | None = None
    """Of the unprofiled steps: median over the ranks of their medians; likewise the next."""
    around_ms: float | None = None
    """Of those just before and after the windows; None where they are most of the run."""
    typical: bool | None = None
    """Whether both medians agree."""
    windows: list[RecordedRange] = field(default_factory=list)
    buckets: list[StepBucket] = field(default_factory=list)
    rows: list[RankStepTimes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
