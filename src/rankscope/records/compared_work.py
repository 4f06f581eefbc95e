"""Work that is compared: operators of two ranks, and stages of a pipeline; part of the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["OperatorExcess", "StageBalance", "StageWork"]


@dataclass(kw_only=True)
class OperatorExcess:
    """An operator that takes more of a step on one rank than on its peers. Values are per step, times in ms of device
    time, or of the operator's self time without a device."""

    name: str
    calls: float
    peers_calls: float
    ms: float
    peers_ms: float
    line: str = ""
    """The user's function with most of the additional calls, ``evaluate() (train.py:212)``; empty without stacks."""


@dataclass(kw_only=True)
class StageWork:
    """Work of one pipeline stage per step, mean over its ranks: device time, or host time without a device."""

    ranks: list[int]
    forward_ms: float
    """All that is not in the backward."""
    backward_ms: float

    @property
    def ms(self) -> float:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms


@dataclass(kw_only=True)
class StageBalance:
    """How evenly work is divided among pipeline stages, and what less work on the longest would gain, by replay."""

    stages: list[StageWork]
    """In the order of the pipeline."""
    lowered_ms: float
    """Gain per step if the longest stage took no longer than the median of the others."""
    error_ms: float
    """Half width of its 95 % confidence interval."""
    even_ms: float
    """Gain per step if forward and backward took equally long on all stages."""
    operators: list[OperatorExcess] = field(default_factory=list)
    """Operators that take more of a step on the longest stage than on the shortest, most first."""

    @property
    def longest(self) -> int:
        """Index of the stage with most work."""
        return max(range(len(self.stages)), key=lambda s: self.stages[s].ms)

    @property
    def shortest(self) -> int:
        """Index of the stage with least work."""
        return min(range(len(self.stages)), key=lambda s: self.stages[s].ms)
