"""Ranks that take turns: in each step another one of them is late."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diagnose.base.decision import StragglerDecision
from rankscope.records.evidence import Evidence
from rankscope.statistics.thresholds import LOSES

__all__ = ["take_turns"]

TURNS = 0.8
"""Share of the recorded steps that lose time to one rank alone, from which on ranks take turns."""


def take_turns(stragglers: Sequence[StragglerDecision], evidence: Evidence) -> bool:
    """Return whether nearly every step loses time to one of them alone, and none of them delays most steps.

    Then each costs its own steps, and their joint cost is the sum.
    """
    counts = {len(d.suspect.gains_ms) for d in stragglers}
    if len(stragglers) < 2 or len(counts) != 1 or min(counts) < 2 or len({d.cause for d in stragglers}) != 1:
        return False
    least = LOSES * (evidence.step_ms or 0.0)
    steps = [*zip(*(d.suspect.gains_ms for d in stragglers), strict=True)]
    alone = [step.index(max(step)) for step in steps if sum(gain > least for gain in step) == 1]
    often = max((alone.count(i) for i in set(alone)), default=0)
    return len(alone) >= TURNS * len(steps) and len(set(alone)) > 1 and often < TURNS * len(steps)
