"""A sweep: what is tried (``sweep.json``), what became of each run (``jobs/``), and the table at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.limits import Step

__all__ = ["SWEEP_VERSION", "SweepJob", "SweepPlan", "SweepResult", "SweepRow", "SweepSetting"]

SWEEP_VERSION = "1.0"


@dataclass(kw_only=True)
class SweepSetting:
    """One combination of values."""

    number: int
    """From 1 on. The first is what the others are compared with."""
    name: str
    """What is different about it, for people: ``bucket_cap_mb=25``."""
    overrides: list[str]
    """As ``rankscope run -S`` takes them; only what is swept. Secrets are masked where they are kept."""
    knobs: dict[str, str] = field(default_factory=dict)
    """Arguments of the script and variables of the environment that it sets, by their names without ``script.`` and
    ``env.``."""


@dataclass(kw_only=True)
class SweepPlan:
    """What a sweep consists of."""

    words: list[str]
    """The command line behind ``rankscope sweep``, without the sweep's own flags; secrets are masked."""
    settings: list[SweepSetting]
    repeats: int
    """Runs of each setting."""
    schema_version: str = SWEEP_VERSION


@dataclass(kw_only=True)
class SweepJob:
    """One run that has ended."""

    setting: int
    repeat: int
    """From 1 on."""
    folder: str
    """Its run directory, below the sweep's."""
    exit_code: int
    seconds: float
    host: str = ""


@dataclass(kw_only=True)
class SweepRow:
    """One setting in the table. Times in ms a step; None is unknown."""

    setting: int
    name: str
    overrides: list[str]
    runs: int = 0
    """That have a step time."""
    failed: int = 0
    step_ms: float | None = None
    """Geometric mean over the runs of the usual step of each."""
    noise_ms: float | None = None
    """Half the width of its interval (99 %)."""
    each_ms: list[float] = field(default_factory=list)
    """Of each run, in the order of the repeats."""
    gain_ms: float | None = None
    """By which a step is shorter than with the first setting; negative where it is longer."""
    gain_low_ms: float | None = None
    """Interval (99 %) of the gain; likewise the next."""
    gain_high_ms: float | None = None
    told: bool = False
    """Whether the gain, or the loss, is more than chance, with all settings of the sweep taken together."""
    predicted_ms: float | None = None
    """What the report of the first setting says that turning this knob gains."""
    predicted_error_ms: float | None = None
    predicted_at_most: bool = False
    """Whether that is a bound."""
    predicted_by: str = ""
    """Code of the advice."""
    verdict: str = ""
    """Kind of the verdict of its last report."""
    notes: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class SweepResult:
    """The table of a sweep."""

    name: str
    rows: list[SweepRow]
    """The first one is what the others are compared with."""
    repeats: int
    planned: int
    """Runs in all."""
    ended: int = 0
    step_source: Literal["unrecorded", "recorded"] = "unrecorded"
    steps: Step = 0
    """Of all runs together."""
    order: str = ""
    """In which the settings were run, by their numbers."""
    noise_source: Literal["repeats", "usual"] = "repeats"
    """``usual``: too few repeats; what runs of one program usually differ by is taken."""
    notes: list[str] = field(default_factory=list)
    schema_version: str = SWEEP_VERSION

    @property
    def best(self) -> SweepRow | None:
        """The setting with the shortest step, where it is told apart from the first one."""
        told = [row for row in self.rows if row.told and (row.gain_ms or 0.0) > 0]
        return max(told, key=lambda row: row.gain_ms or 0.0, default=None)
