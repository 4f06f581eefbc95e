"""What two runs differ in: the contract that other programs read (``rankscope diff --format json``)."""

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
"""``time``: where the ranks' time goes; ``beside``: compute that ran beside communication, of which the length says
nothing; ``wait``: time that collectives waited for the last rank, which is never a slower kernel."""


@dataclass(kw_only=True)
class DiffSide:
    """One of the runs."""

    name: str
    """As it was given."""
    run_id: str | None = None
    world_size: WorldSize | None = None
    devices: list[str] = field(default_factory=list)
    step_ms: float | None = None
    steps: Step = 0
    """That ``step_ms`` is the median of; the mean of fewer than 20."""
    step_source: Literal["unrecorded", "recorded"] = "recorded"
    runs: int = 1
    """More for a baseline."""


@dataclass(kw_only=True)
class DiffRow:
    """One thing that was measured in both runs. None is unknown, or not there."""

    kind: RowKind
    name: str
    unit: str
    """``ms``: milliseconds a step; ``count``: a step; ``bytes``; ``GB/s``: of bus bandwidth."""
    before: float | None
    after: float | None
    change: float | None
    """``after - before``; of something new or gone all of it."""
    noise: float | None = None
    """A change up to this is no news; 0 for what does not vary."""
    told: bool = False
    """Whether the change is beyond it."""
    status: Literal["changed", "new", "gone"] = "changed"
    ranks: list[Rank] = field(default_factory=list)
    """On which it changed; ``before`` and ``after`` are those of the rank that changed most."""
    module: str = ""
    """Of a kernel the module whose call launched it, ``GPT/Block/Linear``; empty where it is not known, or none."""
    detail: str = ""
    """More in words, for instance ``64 a step of 0.412 -> 0.487 ms``."""


@dataclass(kw_only=True)
class DiffPart:
    """A part of the difference of the steps, by replay."""

    kind: Literal["host", "device", "transfer", "unexplained"]
    ms: float
    ranks: dict[str, float] = field(default_factory=dict)
    """Rank (as text, for JSON) -> how much more of such work it has a step, ms, be it hidden or not."""


@dataclass(kw_only=True)
class DiffPromise:
    """What the older report said that a mended fault would gain, and what was gained."""

    text: str
    promised_ms: float
    error_ms: float | None
    got_ms: float
    kept: bool
    """Whether both agree within their errors."""
    at_most: bool = False
    """Whether a bound was promised, which is kept by all that gains no more."""


@dataclass(kw_only=True)
class RunDiff:
    """Two runs. Everything a step; ms unless said otherwise."""

    verdict: DiffVerdict
    sentence: str
    before: DiffSide
    after: DiffSide
    step: DiffRow
    reasons: list[str] = field(default_factory=list)
    """Why the runs cannot be compared."""
    changed: list[str] = field(default_factory=list)
    """Versions, hardware and settings that are not the same."""
    parts: list[DiffPart] = field(default_factory=list)
    """They add up to the change of the step. Empty where no replay of both is possible; ``notes`` say why."""
    rows: list[DiffRow] = field(default_factory=list)
    """All that was compared, the largest changes of a kind first."""
    promises: list[DiffPromise] = field(default_factory=list)
    findings_new: list[str] = field(default_factory=list)
    """Titles of what only the later report found; likewise the next."""
    findings_gone: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    schema_version: str = DIFF_VERSION

    @property
    def told(self) -> list[DiffRow]:
        """Rows beyond their noise."""
        return [row for row in self.rows if row.told]
