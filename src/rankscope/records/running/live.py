"""How a job is doing now: what each node's helper places in the run directory every few seconds while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.limits import Attempt, Count, Rank, Step, WorldSize

__all__ = ["NodeLive", "RankLive"]


@dataclass(kw_only=True)
class RankLive:
    """One rank, over its last steps (at most 200)."""

    rank: Rank
    steps: Step
    """Made so far."""
    step_ms: float = 0.0
    """Median."""
    before_ms: float = 0.0
    """Median of as many steps before those, for the trend; 0 where there are too few."""
    input_pct: float = 0.0
    """Share of the time spent in the data loader."""
    own_ms: float = 0.0
    """Mean time before the ranks meet: before the forward, and in it. Of ranks in step the latest has most."""
    idle_s: float = 0.0
    """Since its last step."""
    seconds: float = 0.0
    """Time of all its steps."""
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
    """What the step logs of this node's ranks tell, where they name somebody; or that the job stands still."""
    named: list[Rank] = field(default_factory=list)
