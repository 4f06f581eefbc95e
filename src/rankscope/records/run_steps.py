"""Step times over the whole run, for the report's curve."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.limits import Attempt, Rank, Step

__all__ = ["RankStepTimes", "RecordedRange", "RunSteps", "StepBucket"]


@dataclass(kw_only=True)
class StepBucket:
    """Consecutive steps of the run, recorded or not. Values are None if no step was timed."""

    first: Step
    last: Step
    step_ms: float | None = None
    """Median over the ranks of their mean step."""
    slowest_ms: float | None = None
    """The longest single step, and its rank in the next field."""
    slowest_rank: Rank | None = None
    input_ms: float | None = None
    """Mean time in the data loader of the rank with most of it, and that rank in the next field."""
    input_rank: Rank | None = None


@dataclass(kw_only=True)
class RankStepTimes:
    """One rank over the unprofiled steps of the whole run, in which no rank recorded or closed a window."""

    rank: Rank
    steps: Step = 0
    median_ms: float | None = None
    p99_ms: float | None = None
    longest_ms: float | None = None
    longest_step: Step | None = None
    input_pct: float | None = None
    gc_ms_per_step: float | None = None
    drift_pct: float | None = None
    """Median of the last quarter of the steps compared with that of the first."""


@dataclass(kw_only=True)
class RecordedRange:
    """Steps in which a rank recorded, warm-up included; both ends inclusive."""

    first: Step
    last: Step


@dataclass(kw_only=True)
class RunSteps:
    """Step times of the whole last attempt."""

    attempt: Attempt
    steps: Step
    unprofiled_steps: Step = 0
    """Number of timed unprofiled steps of the rank with most of them."""
    median_ms: float | None = None
    """Median over the ranks of their medians over unprofiled steps; likewise the next."""
    around_ms: float | None = None
    """The same for the steps just before and after the windows; None if these are most of the run."""
    typical: bool | None = None
    """Whether the two medians agree."""
    windows: list[RecordedRange] = field(default_factory=list)
    buckets: list[StepBucket] = field(default_factory=list)
    rows: list[RankStepTimes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
