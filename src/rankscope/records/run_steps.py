"""The report's curve of every step of the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.limits import Attempt, Rank, Step

__all__ = ["RankStepTimes", "RecordedRange", "RunSteps", "StepBucket"]


@dataclass(kw_only=True)
class StepBucket:
    """Neighbouring steps of the whole run, recorded or not. None where no step was timed."""

    first: Step
    last: Step
    step_ms: float | None = None
    """Median over the ranks of their mean step."""
    slowest_ms: float | None = None
    """The longest single step, and whose it was."""
    slowest_rank: Rank | None = None
    input_ms: float | None = None
    """Mean time in the data loader of the rank that waited most for it, and which rank that was."""
    input_rank: Rank | None = None


@dataclass(kw_only=True)
class RankStepTimes:
    """One rank over the unprofiled steps of the whole run: no rank recorded, nor closed a window."""

    rank: Rank
    steps: Step = 0
    median_ms: float | None = None
    p99_ms: float | None = None
    longest_ms: float | None = None
    longest_step: Step | None = None
    input_pct: float | None = None
    gc_ms_per_step: float | None = None
    drift_pct: float | None = None
    """Median of the last quarter of the steps against that of the first."""


@dataclass(kw_only=True)
class RecordedRange:
    """Steps in which a rank recorded, warm-up included; both ends are inside."""

    first: Step
    last: Step


@dataclass(kw_only=True)
class RunSteps:
    """Step times of the whole last attempt."""

    attempt: Attempt
    steps: Step
    unprofiled_steps: Step = 0
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
