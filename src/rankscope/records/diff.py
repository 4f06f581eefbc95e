"""Difference between two runs: the contract that other programs read (``rankscope diff --format json``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.limits import Rank, Step, WorldSize

__all__ = [
    "DIFF_VERSION",
    "DiffPart",
    "DiffPromise",
    "DiffRow",
    "DiffSide",
    "DiffVerdict",
    "RowKind",
    "RunDiff",
]

DIFF_VERSION = "1.1"

DiffVerdict = Literal["slower", "faster", "same", "not_comparable"]
RowKind = Literal["step", "time", "count", "kernel", "beside", "collective", "wait", "memory"]
"""``time``: where the ranks' time goes. ``beside``: compute that overlapped communication, whose duration says little
about the kernel. ``wait``: time that collectives waited for the last rank, which is not a slower kernel."""


@dataclass(kw_only=True)
class DiffSide:
    """One of the runs."""

    name: str
    """As given on the command line."""
    run_id: str | None = None
    world_size: WorldSize | None = None
    devices: list[str] = field(default_factory=list)
    step_ms: float | None = None
    steps: Step = 0
    """Number of steps whose median is ``step_ms``; with fewer than 20, it is their mean."""
    step_source: Literal["unrecorded", "recorded"] = "recorded"
    runs: int = 1
    """Number of runs; more than one for a baseline."""


@dataclass(kw_only=True)
class DiffRow:
    """One quantity measured in both runs. None: unknown, or absent."""

    kind: RowKind
    name: str
    unit: str
    """``ms``: milliseconds per step; ``count``: per step; ``bytes``; ``GB/s``: bus bandwidth."""
    before: float | None
    after: float | None
    change: float | None
    """``after - before``; for something new or gone, its whole value."""
    noise: float | None = None
    """A change up to this is not significant; 0 for what does not vary."""
    chance: float | None = None
    """Probability that two runs of one program show as much, for this row alone; None for what does not vary."""
    told: bool = False
    """Whether the change exceeds ``noise``, and chance with all rows of the difference taken together."""
    status: Literal["changed", "new", "gone"] = "changed"
    ranks: list[Rank] = field(default_factory=list)
    """Ranks on which it changed; ``before`` and ``after`` are those of the rank that changed most."""
    module: str = ""
    """For a kernel, the module whose call launched it, ``GPT/Block/Linear``; empty if unknown or outside of modules."""
    detail: str = ""
    """Further description, for instance ``64 a step of 0.412 -> 0.487 ms``."""


@dataclass(kw_only=True)
class DiffPart:
    """A part of the difference of the step times, by replay."""

    kind: Literal["host", "device", "transfer", "unexplained"]
    ms: float
    ranks: dict[str, float] = field(default_factory=dict)
    """Rank (as text, for JSON) -> additional work of this kind in ms per step, whether overlapped or not."""


@dataclass(kw_only=True)
class DiffPromise:
    """The gain that the older report predicted for removing a fault, and the gain that was measured."""

    text: str
    promised_ms: float
    error_ms: float | None
    got_ms: float
    kept: bool
    """Whether the two agree within their errors."""
    at_most: bool = False
    """Whether an upper bound was predicted; any gain up to it agrees."""


@dataclass(kw_only=True)
class RunDiff:
    """Two runs. All values are per step, and in ms unless stated otherwise."""

    verdict: DiffVerdict
    sentence: str
    before: DiffSide
    after: DiffSide
    step: DiffRow
    reasons: list[str] = field(default_factory=list)
    """Why the runs cannot be compared; empty if they can."""
    changed: list[str] = field(default_factory=list)
    """Versions, hardware and settings that differ."""
    parts: list[DiffPart] = field(default_factory=list)
    """Parts that add up to the change of the step time. Empty if the two runs cannot both be replayed; ``notes`` state
    why."""
    rows: list[DiffRow] = field(default_factory=list)
    """All compared quantities, within a kind the largest changes first."""
    promises: list[DiffPromise] = field(default_factory=list)
    findings_new: list[str] = field(default_factory=list)
    """Titles of the findings of the later report only; likewise the next, of the older only."""
    findings_gone: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    schema_version: str = DIFF_VERSION

    @property
    def told(self) -> list[DiffRow]:
        """Return the rows whose change exceeds its noise."""
        return [row for row in self.rows if row.told]
