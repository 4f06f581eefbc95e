"""Analysis to report: the contract that other programs read (``report.json``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rankscope.limits import Rank, WorldSize
from rankscope.records.codec import SCHEMA_VERSION
from rankscope.records.from_script import RegionRow, RunMark, Throughput
from rankscope.records.rows import (
    CriticalPath,
    Efficiency,
    GroupRow,
    HealthRow,
    KernelRow,
    LaunchQueue,
    MemoryRow,
    ModuleRow,
    RankIdle,
    RankSummary,
    StepRow,
)
from rankscope.records.run_steps import RunSteps
from rankscope.records.running.between import BetweenVerdict
from rankscope.records.running.hang import HangVerdict

__all__ = [
    "Action",
    "ClockReport",
    "ClusterReport",
    "CollectivesReport",
    "Confidence",
    "Finding",
    "ReportError",
    "RunInfo",
    "SourceFile",
    "Verdict",
    "VerdictKind",
]

Confidence = Literal["high", "medium", "low"]
VerdictKind = Literal[
    "straggler", "balanced", "host_bound", "comm_bound", "memory_bound", "pipeline", "contended", "insufficient_data"
]


@dataclass(kw_only=True)
class RunInfo:
    """The head of the report. For traces without a run directory only ``source``, ``world_size`` and ``windows`` are
    known."""

    source: Literal["run", "traces"]
    run_id: str | None = None
    command: list[str] = field(default_factory=list)
    world_size: WorldSize | None = None
    hosts: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    backend: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    begun: str | None = None
    """When the first analysed window began, ``2026-11-29 02:14 UTC``. None if the traces' clock is unknown."""
    windows: list[str] = field(default_factory=list)
    """Each analysed window in words: ``steps 13 to 18, 8 ranks``; if not the first, after ``attempt 0, window 1: ``."""
    exit_code: int | None = None
    recording_overhead_pct: float | None = None
    """Median step inside the window compared with the median before it; None if not measured."""
    residue_pct: float | None = None
    """Median step after the last window compared with the median before it: overhead that remains after recording."""
    longest_stall_ms: float | None = None
    """Longest time for which opening or closing a window stopped a training thread."""
    redacted: str | None = None
    """Set for a copy that `rankscope redact` made: its level. Names, shapes, hosts and paths are tokens."""
    redacted_kinds: dict[str, str] = field(default_factory=dict)
    """For such a copy, the treatment of each kind of content: ``keep``, ``token``, ``shift`` or ``drop``."""
    notes: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class ClockReport:
    """How the ranks' clocks were aligned: ``aligned = own + offset``."""

    method: str
    """``collective_ends``, ``host_clock`` (the processes of one host share a clock) or ``none``."""
    offsets_us: dict[str, float] = field(default_factory=dict)
    """Rank (as text, for JSON) -> clock offset."""
    error_us: float | None = None
    """95 % of the residuals of collective ends are within this; for ``host_clock``, the error of Kineto's times."""


@dataclass(kw_only=True)
class CollectivesReport:
    """How many collectives the ranks recorded, and how many were matched, that is, recognised as one call on all
    ranks."""

    count: int
    matched_pct: float | None
    method: str
    """``comms_id``, ``seq``, ``order``, joined by ``+`` when several were used, or ``none``."""
    unmatched: dict[str, int] = field(default_factory=dict)
    """Reason -> number of calls."""


@dataclass(kw_only=True)
class Verdict:
    """The first line of the report.

    ``cost_ms_per_step`` is what the job's step would shrink by without the cause, ``cost_error_ms`` its uncertainty in
    the same unit; both are None if no cost is stated.
    """

    kind: VerdictKind
    ranks: list[Rank] = field(default_factory=list)
    cause: str | None = None
    cost_ms_per_step: float | None = None
    cost_error_ms: float | None = None
    confidence: Confidence = "low"
    reason: str | None = None
    """Code of the reason why there is no verdict; None if there is one."""
    sure: str = ""
    """What limits the confidence, or what it is based on, in a few words."""
    step_ms: float | None = None
    """The job's step time that the cost refers to."""
    step_source: Literal["recorded", "unrecorded"] = "recorded"
    """Whether ``step_ms`` is the mean recorded step, or the median of the run's unrecorded ones."""
    share_of_steps_pct: float | None = None
    """Recorded steps that lose more than 2 % of their time to the cause; None if no cost is stated."""
    p_value: float | None = None
    sentence: str = ""
    """The verdict in one sentence that can be understood alone."""
    why: list[str] = field(default_factory=list)
    """The supporting numbers, the most convincing first."""
    next: list[str] = field(default_factory=list)
    """Next steps, the first one first."""
    between: BetweenVerdict | None = None
    """The verdict from the log of all steps; None without one."""


@dataclass(kw_only=True)
class Finding:
    """A finding with its evidence. ``id`` is stable within a report and used as an anchor."""

    id: str
    kind: str
    ranks: list[Rank]
    cost_ms_per_step: float | None
    confidence: Confidence
    title: str
    evidence: list[str]
    advice: list[str]


@dataclass(kw_only=True)
class Action:
    """One recommended change. Gains do not add up: after the first one the bottleneck may be elsewhere, see
    ``step_then_ms``."""

    code: str
    """Code of the rule that recommends it. It never changes, while the wording may."""
    text: str
    """What to change, in one sentence."""
    ranks: list[Rank]
    kind: Literal["replay", "bound", "none"] = "none"
    """``replay``: what the recorded steps gain. ``bound``: an upper bound of the gain. ``none``: no gain is stated."""
    saves_ms: float | None = None
    """Gain per step."""
    error_ms: float | None = None
    step_then_ms: float | None = None
    """The step time after this and all previous actions, by one replay with all of them; None if unknown."""
    check: str = ""
    """How to check that it worked."""


@dataclass(kw_only=True)
class SourceFile:
    """One file that was offered to the analysis, and its result."""

    path: str
    status: Literal["used", "ignored", "unusable", "unassigned"]
    rank: Rank | None = None
    reason: str | None = None
    repairs: dict[str, int] = field(default_factory=dict)
    """Kind of repair or drop -> number of events."""


@dataclass(kw_only=True)
class ReportError:
    """An analysis that failed; the rest of the report is valid without it."""

    where: str
    message: str


@dataclass(kw_only=True)
class ClusterReport:
    """``report.json``. All measurements write it, and all output formats read only this."""

    run: RunInfo
    ranks: list[RankSummary]
    clock: ClockReport
    collectives: CollectivesReport
    verdict: Verdict
    findings: list[Finding] = field(default_factory=list)
    what_if: dict[str, float] = field(default_factory=dict)
    """What each step would gain by replay, ms: ``ideal_network``, ``hidden_transfers``, ``even_compute``,
    ``no_host_overhead``. Empty if nothing was replayed."""
    hta: dict[str, Any] = field(default_factory=dict)
    """Analysis name -> rank (as text) -> HTA's own numbers."""
    errors: list[ReportError] = field(default_factory=list)
    idle: list[RankIdle] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    modules: list[ModuleRow] = field(default_factory=list)
    kernels: list[KernelRow] = field(default_factory=list)
    queues: list[LaunchQueue] = field(default_factory=list)
    regions: list[RegionRow] = field(default_factory=list)
    """Parts of the step that the script named, the longest on the host first."""
    marks: list[RunMark] = field(default_factory=list)
    """What the script marked in the whole run, in order of attempt and step."""
    throughput: Throughput | None = None
    """None if the script did not state what a step processes."""
    sources: list[SourceFile] = field(default_factory=list)
    health: list[HealthRow] = field(default_factory=list)
    memory: list[MemoryRow] = field(default_factory=list)
    efficiency: Efficiency | None = None
    critical_path: CriticalPath | None = None
    actions: list[Action] = field(default_factory=list)
    """Recommended changes, the largest gain first."""
    pulse: RunSteps | None = None
    hang: HangVerdict | None = None
    """Why the job made no progress, the last time that it did not."""
    schema_version: str = SCHEMA_VERSION
