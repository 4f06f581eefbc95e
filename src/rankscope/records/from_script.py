"""What the training script said of itself, in run.json and in the report: regions, marks, what a step processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.limits import Attempt, Count, Rank, Step

__all__ = ["RegionExcess", "RegionRow", "RunMark", "Throughput"]


@dataclass(kw_only=True)
class RegionRow:
    """A part of the step that the script named (:class:`rankscope.region`, ``torch.profiler.record_function``).

    Times are per step, inclusive of regions inside; of a region within itself the outer one counts. ``device`` is work
    of the device that was launched inside, and so not the backward of it.
    """

    region: str
    ranks: Count
    """Number of ranks that ran it in a recorded step."""
    calls_per_step: float
    """Mean over these ranks."""
    host_ms: float
    """Median over these ranks; likewise the next."""
    device_ms: float | None = None
    """None if no device was recorded."""
    host_rank: Rank | None = None
    """The rank with the longest time on the host."""
    device_rank: Rank | None = None
    """The same on the device."""
    host_ms_by_rank: dict[str, float] = field(default_factory=dict)
    """Rank (as text, for JSON) -> ms, of the 64 ranks with the longest times; likewise the next."""
    device_ms_by_rank: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class RegionExcess:
    """The region that holds most of the time which a late rank takes beyond its peers, for one cause; ms per step."""

    region: str
    ms: float
    """Time of the cause inside of it."""
    peers_ms: float
    """The same on the median peer."""


@dataclass(kw_only=True)
class RunMark:
    """A mark of the script (:func:`rankscope.mark`), once for all ranks that made it in the same step."""

    attempt: Attempt
    step: Step
    name: str
    rank: Rank
    """The lowest of these ranks; the values are its own."""
    ranks: Count = 1
    """Number of these ranks."""
    values: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class Throughput:
    """Rates of the whole job, from what the script said (:func:`rankscope.describe`) and the report's step time."""

    tokens: float | None = None
    """Of one step of all ranks; likewise the next two."""
    samples: float | None = None
    model_flop: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    tflops_per_rank: float | None = None
    """10^12 operations of the model per second and rank."""
    mfu_pct: float | None = None
    """The same as a share of the device's peak in bf16; None if the peak is unknown."""
