"""A sweep: its settings (``sweep.json``), the result of each run (``jobs/``), and the final table."""

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
    """From 1 on. The others are compared with the first."""
    name: str
    """Its difference from the others, for display: ``bucket_cap_mb=25``."""
    overrides: list[str]
    """As for ``rankscope run -S``; only the swept keys. Secrets are masked where they are stored."""
    knobs: dict[str, str] = field(default_factory=dict)
    """Script arguments and environment variables that it sets, by name without ``script.`` and ``env.``."""


@dataclass(kw_only=True)
class SweepPlan:
    """The definition of a sweep."""

    words: list[str]
    """The command line after ``rankscope sweep``, without the sweep's own flags; secrets are masked."""
    settings: list[SweepSetting]
    repeats: int
    """Number of runs per setting."""
    schema_version: str = SWEEP_VERSION


@dataclass(kw_only=True)
class SweepJob:
    """One run that has ended."""

    setting: int
    repeat: int
    """From 1 on."""
    folder: str
    """Its run directory, below that of the sweep."""
    exit_code: int
    seconds: float
    host: str = ""


@dataclass(kw_only=True)
class SweepRow:
    """One setting in the table. Times in ms per step; None: unknown."""

    setting: int
    name: str
    overrides: list[str]
    runs: int = 0
    """Number of runs with a step time."""
    failed: int = 0
    step_ms: float | None = None
    """Geometric mean over the runs of their usual step time."""
    noise_ms: float | None = None
    """Half the width of its 99 % interval."""
    each_ms: list[float] = field(default_factory=list)
    """Step time of each run, in the order of the repeats."""
    gain_ms: float | None = None
    """How much shorter a step is than with the first setting; negative if it is longer."""
    gain_low_ms: float | None = None
    """99 % interval of the gain; likewise the next."""
    gain_high_ms: float | None = None
    told: bool = False
    """Whether the gain, or the loss, is significant, corrected for all settings of the sweep."""
    predicted_ms: float | None = None
    """Gain of changing this setting that the report of the first setting predicts."""
    predicted_error_ms: float | None = None
    predicted_at_most: bool = False
    """Whether the prediction is an upper bound."""
    predicted_by: str = ""
    """Code of the advice that predicts it."""
    verdict: str = ""
    """Kind of the verdict of its last report."""
    notes: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class SweepResult:
    """The table of a sweep."""

    name: str
    rows: list[SweepRow]
    """The others are compared with the first one."""
    repeats: int
    planned: int
    """Number of all runs."""
    ended: int = 0
    step_source: Literal["unrecorded", "recorded"] = "unrecorded"
    steps: Step = 0
    """Number of steps of all runs together."""
    order: str = ""
    """The order in which the settings were run, by number."""
    noise_source: Literal["repeats", "usual"] = "repeats"
    """``usual``: there are too few repeats, so the usual difference between runs of one program is assumed."""
    notes: list[str] = field(default_factory=list)
    schema_version: str = SWEEP_VERSION

    @property
    def best(self) -> SweepRow | None:
        """Return the setting with the shortest step, if it differs significantly from the first one."""
        significant = [row for row in self.rows if row.told and (row.gain_ms or 0.0) > 0]
        return max(significant, key=lambda row: row.gain_ms or 0.0, default=None)
