"""What the logs of all steps show about the run between its windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.limits import Rank, Step

__all__ = ["OCCASIONS", "BetweenKind", "BetweenVerdict", "PatternKind", "SlowPattern"]

PatternKind = Literal[
    "always", "every", "since", "drifting", "spell", "bursts", "turns", "stall", "checkpoint", "evaluation"
]
OCCASIONS = ("checkpoint", "evaluation")
"""Kinds of patterns that the script intends: nobody is to blame for them."""
BetweenKind = Literal["named", "turns", "alike", "nobody", "contended", "insufficient_data"]


@dataclass(kw_only=True)
class SlowPattern:
    """A pattern of steps that are longer than necessary, and the ranks that cause it."""

    kind: PatternKind
    """In all steps; in every n-th; from a step on; increasing; in one interval of steps; irregularly; several ranks,
    each in every n-th step; in single steps that are long by themselves; with a checkpoint; with an evaluation."""
    ranks: list[Rank] = field(default_factory=list)
    """The late ranks. Empty: all ranks take longer equally."""
    place: str = ""
    """Where the time is spent: ``input`` (the data loader), ``gc``, ``before`` (before the forward, without the other
    two), ``forward``, ``backward`` (CPU time in it), ``after`` (between the backward and the end of the step); empty if
    no place is clear."""
    cpu: bool = False
    """Whether the extra time is mostly CPU time of the training thread; otherwise it sleeps or waits."""
    period: Step | None = None
    """Number of steps from one such step to the next, if regular."""
    first: Step = 0
    """The first such step."""
    last: Step | None = None
    """The last such step, if the pattern has ended."""
    size_ms: float = 0.0
    """How much later than its peers such a rank is in such a step, median."""
    cost_ms: float = 0.0
    """What a step would gain without it, on average over all compared steps."""
    error_ms: float = 0.0
    """Standard error of the cost, from blocks of steps."""
    seen: Step = 0
    """Number of such steps."""
    of: Step = 0
    """Number of steps that the pattern predicts."""
    p_value: float | None = None
    """Probability of such a pattern without a cause, over all patterns that were tested; None if nothing was tested."""
    sentence: str = ""

    @property
    def accuses(self) -> bool:
        """Whether ranks are to blame for it. What happened once, or a few times, may happen to any rank next."""
        return bool(self.ranks) and self.kind not in (*OCCASIONS, "stall")


@dataclass(kw_only=True)
class BetweenVerdict:
    """The verdict from the step logs of all ranks. Recorded steps and the first steps are excluded."""

    kind: BetweenKind
    ranks: list[Rank] = field(default_factory=list)
    """The named ranks, in order of cost, the largest first."""
    steps: Step = 0
    """Number of compared steps."""
    step_ms: float | None = None
    """Median over steps of the median over ranks."""
    patterns: list[SlowPattern] = field(default_factory=list)
    """In order of cost, the largest first."""
    held_ms: float | None = None
    """Delay per step by contention for CPUs: time in which a training thread was runnable but not running, mean of the
    rank with most of it."""
    sentence: str = ""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""
    window: str = ""
    """How this verdict relates to that of the windows; empty without windows."""
