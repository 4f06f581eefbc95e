"""Analysis to plots: what several ranks do in one step, on one clock. Not stored."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Lane", "LanePiece", "StepLanes"]


@dataclass(kw_only=True)
class LanePiece:
    """A stretch of one kind of work; times in ms from the begin of the step on the rank that begins first."""

    start_ms: float
    duration_ms: float
    kind: str
    """``input``, ``host``, ``compute``, ``fused``, ``copy``, ``waiting`` or ``transfer``."""
    name: str = ""


@dataclass(kw_only=True)
class Lane:
    """One line of the picture."""

    rank: int
    track: str
    """``host``, ``compute`` or ``communication``."""
    pieces: list[LanePiece] = field(default_factory=list)


@dataclass(kw_only=True)
class StepLanes:
    """The lanes of one step."""

    step: int
    step_ms: float
    """From its begin on the first rank to the end of its work on the last one."""
    lanes: list[Lane] = field(default_factory=list)
