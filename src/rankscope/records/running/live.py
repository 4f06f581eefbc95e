"""Current state of a job: written by each node's helper to the run directory every few seconds while the job runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.limits import Attempt, Count, Rank, Step, WorldSize

__all__ = ["NodeLive", "RankLive"]


@dataclass(kw_only=True)
class RankLive:
    """One rank, over its last steps (at most 200)."""

    rank: Rank
    steps: Step
    """Number of steps so far."""
    step_ms: float = 0.0
    """Median."""
    before_ms: float = 0.0
    """Median of the same number of steps before those, for the trend; 0 if there are too few."""
    input_pct: float = 0.0
    """Share of the time spent in the data loader."""
    wait_pct: float | None = None
    """Share of the time in which it waits in collectives and does nothing else, as far as that shows without a
    profiler: what is left of the backward beside the rank's own work. None: unknown, as in jobs on accelerators."""
    own_ms: float = 0.0
    """Mean time before the ranks synchronise: before the forward, and in it. If the ranks are in step, the latest has
    most."""
    idle_s: float = 0.0
    """Time since its last step."""
    seconds: float = 0.0
    """Total time of its steps."""
    input_seconds: float = 0.0


@dataclass(kw_only=True)
class NodeLive:
    """All ranks of a node."""

    node: str
    host: str
    attempt: Attempt
    world_size: WorldSize
    time_ns: Count
    ranks: list[RankLive] = field(default_factory=list)
    news: str = ""
    """What the step logs of this node's ranks show, if they name a rank; or that the job makes no progress."""
    named: list[Rank] = field(default_factory=list)
    window_first: Step | None = None
    """First step of the window that is open, or comes next: announced, or planned. None: none is."""
    window_last: Step | None = None
