"""What the logs of all steps tell of the run between its windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.limits import Rank, Step

__all__ = ["BetweenKind", "BetweenVerdict", "PatternKind", "SlowPattern"]

PatternKind = Literal["always", "every", "since", "drifting", "spell", "bursts", "turns", "checkpoint", "evaluation"]
BetweenKind = Literal["named", "turns", "alike", "nobody", "contended", "insufficient_data"]


@dataclass(kw_only=True)
class SlowPattern:
    """Steps that are longer than they have to be, and which ranks make them so."""

    kind: PatternKind
    """In all steps; every so many; from a step on; more and more; once for a while; irregularly; several ranks, each
    every so many; with a checkpoint; with an evaluation."""
    ranks: list[Rank] = field(default_factory=list)
    """Who is late. Empty: all ranks take longer alike."""
    place: str = ""
    """Where the time goes: ``input`` (the data loader), ``gc``, ``before`` (the forward, not in either), ``forward``,
    ``backward`` (CPU time in it), ``after`` (between the backward and the end of the step); empty where no place stands
    out."""
    cpu: bool = False
    """Whether the extra time is CPU time of the training thread for the most part; else it sleeps or waits."""
    period: Step | None = None
    """Steps from one such step to the next, where that is regular."""
    first: Step = 0
    """The first such step."""
    last: Step | None = None
    """The last one, where it has ended."""
    size_ms: float = 0.0
    """How much later than its peers such a rank is in such a step, median."""
    cost_ms: float = 0.0
    """What a step would gain without it, on average over all compared steps."""
    error_ms: float = 0.0
    """Standard error of the cost, from blocks of steps."""
    seen: Step = 0
    """Number of such steps,"""
    of: Step = 0
    """of those that the pattern would have."""
    p_value: float | None = None
    """Chance of such a pattern where there is none, over all that were looked for; None where nothing was tested."""
    sentence: str = ""


@dataclass(kw_only=True)
class BetweenVerdict:
    """The verdict from the step logs of all ranks. Recorded steps and the first ones are not in it."""

    kind: BetweenKind
    ranks: list[Rank] = field(default_factory=list)
    """Who is named, most costly first."""
    steps: Step = 0
    """Compared steps."""
    step_ms: float | None = None
    """Median over steps of the median over ranks."""
    patterns: list[SlowPattern] = field(default_factory=list)
    """Most costly first."""
    held_ms: float | None = None
    """Per step, what a busy machine takes from the ranks: time in which a training thread could run and was not let,
    mean of the rank that loses most."""
    sentence: str = ""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""
    window: str = ""
    """How this verdict and that of the windows stand to each other; empty without windows."""
