"""The typed configuration and its checks. Standard library only.

``ToolConfig()`` is the default configuration; :mod:`rankscope.compose` builds others with Hydra, on which this module
does not depend. The dataclasses are not frozen because omegaconf cannot build frozen ones with slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rankscope.capture_backends import backend_names
from rankscope.errors import ConfigError
from rankscope.limits import MAX_RANKS, MAX_STEP, MAX_WINDOW_STEPS, MAX_WINDOWS
from rankscope.records.spec import AgentSpec, BudgetSpec, CaptureSpec, ScheduleSpec

__all__ = [
    "ACTIVITIES",
    "LIVE_MODES",
    "AnalysisConfig",
    "BudgetConfig",
    "CaptureConfig",
    "GatherConfig",
    "HangConfig",
    "LiveConfig",
    "RunConfig",
    "ScheduleConfig",
    "StepsConfig",
    "StoreConfig",
    "ToolConfig",
    "step_sources",
    "to_agent_spec",
]

ACTIVITIES = ("auto", "cpu", "cuda", "xpu")
"""Values of ``capture.activities``. torch.profiler calls ROCm devices ``cuda``."""
MAX_MEGABYTES = 100e6
"""100 TB, more than the disks of a node can store."""
MAX_WAIT_S = 86_400.0
"""One day."""


def _at_least(name: str, value: float, limit: float, remedy: str) -> None:
    if not value >= limit:  # also true for NaN
        raise ConfigError(f"{name}={value} is below its limit of {limit}; {remedy}")


def _at_most(name: str, value: float, limit: float, remedy: str) -> None:
    if not value <= limit:
        raise ConfigError(f"{name}={value} is above its limit of {limit}; {remedy}")


def _one_of(name: str, value: str, known: Iterable[str]) -> None:
    known = list(known)
    if value not in known:
        near = get_close_matches(value, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"{name}={value} is not known; {hint}Choose one of {', '.join(known)}")


@dataclass(kw_only=True)
class ScheduleConfig(ScheduleSpec):
    """Which steps are recorded, with the limits of each number."""

    def __post_init__(self) -> None:
        """Check the limits."""
        _at_least("schedule.skip_first", self.skip_first, 0, "use 0 to start with the first step")
        _at_least("schedule.wait", self.wait, 0, "use 0 to leave no idle steps")
        _at_least("schedule.warmup", self.warmup, 1, "a window without a warm-up step loses kernels, use 1 or more")
        _at_least("schedule.active", self.active, 1, "use 1 or more; 3 to 10 steps are enough for a verdict")
        _at_least("schedule.repeat", self.repeat, 1, "use 1 for a single window")
        if self.every:
            cycle = self.wait + self.warmup + self.active
            _at_least("schedule.every", self.every, cycle, "wait, warmup and active steps must fit; 0 is off")
        unseen = "the agent sees a step when it ends, so the first warm-up step is step 1 at the earliest: use wait=1"
        _at_least("schedule.skip_first + schedule.wait", self.skip_first + self.wait, 1, unseen)
        for name in ("skip_first", "wait", "every"):
            _at_most(f"schedule.{name}", getattr(self, name), MAX_STEP, "no job has so many steps")
        memory = "every rank holds the events of all of them in memory until the window closes; plan more windows"
        for name in ("warmup", "active"):
            _at_most(f"schedule.{name}", getattr(self, name), MAX_WINDOW_STEPS, memory)
        _at_most("schedule.repeat", self.repeat, MAX_WINDOWS, "each window leaves a file of every rank; use fewer")

    def windows(self) -> list[tuple[int, int]]:
        """Return the first and last recorded step of each window, inclusive."""
        return [(w.first, w.last) for number in range(self.repeat) if (w := self.window(number)) is not None]


@dataclass(kw_only=True)
class CaptureConfig(CaptureSpec):
    """What the profiler records, with the values that each setting accepts."""

    def __post_init__(self) -> None:
        """Check activities, backend and ranks."""
        _one_of("capture.backend", self.backend, backend_names())
        numbers = self.ranks.replace(" ", "").split(",")
        if self.ranks not in ("all", "first-of-node") and not all(number.isdecimal() for number in numbers):
            raise ConfigError(f"capture.ranks={self.ranks} is not known; use all, first-of-node, or numbers like 0,7")
        if any(len(n) > len(str(MAX_RANKS)) or int(n) >= MAX_RANKS for n in numbers if n.isdecimal()):
            raise ConfigError(f"capture.ranks={self.ranks:.60} names a rank beyond {MAX_RANKS - 1}; no job has so many")
        if not self.activities:
            raise ConfigError("capture.activities is empty, nothing would be recorded; use [auto]")
        for activity in self.activities:
            _one_of("capture.activities", activity, ACTIVITIES)


@dataclass(kw_only=True)
class BudgetConfig(BudgetSpec):
    """How much may be recorded beyond the planned windows, with the limits of each number."""

    def __post_init__(self) -> None:
        """Check the limits."""
        _at_least("budget.windows", self.windows, 1, "use 1 or more; no window, no trace")
        _at_least("budget.megabytes", self.megabytes, 1, "give it a megabyte or more")
        _at_least("budget.step_pct", self.step_pct, 0, "use 0 to open only planned and requested windows")
        if self.slow_step:
            _at_least("budget.slow_step", self.slow_step, 1.5, "steps vary; 0 is off, 3 is a good start")
        _at_most("budget.slow_step", self.slow_step, MAX_STEP, "no step is so slow; 0 is off, 3 is a good start")
        _at_most("budget.windows", self.windows, MAX_WINDOWS, "each window leaves a file of every rank; use fewer")
        _at_most("budget.megabytes", self.megabytes, MAX_MEGABYTES, "say what the disks of your nodes can spare")
        _at_most("budget.step_pct", self.step_pct, 100, "it is a share of the steps; 5 keeps the job at its pace")


@dataclass(kw_only=True, slots=True)
class RunConfig:
    """Where the run is stored."""

    dir: str | None = None
    """The run directory. On several nodes it is a folder that all nodes can access, or the URL of an object store
    (s3://, gs://, az:// or another that fsspec supports). Default: rankscope_runs/run_NNNN."""

    def __post_init__(self) -> None:
        """Refuse an empty path, which would be the current folder."""
        if self.dir is not None and not self.dir.strip():
            raise ConfigError("run.dir is empty; name a folder (-S run.dir=DIR) or leave it out")


@dataclass(kw_only=True, slots=True)
class StepsConfig:
    """How steps are counted and agreed on."""

    source: str = "auto"
    """``auto``, or the only signal that counts steps: user (``rankscope.step()``), optimizer, scaler (GradScaler),
    profiler, backward (of DDP and FSDP), input (DataLoader), forward (of the outermost module)."""
    agreement_lead: int = 3
    """Number of steps by which a window is announced to the other ranks before it opens."""

    def __post_init__(self) -> None:
        """Check source and lead."""
        _one_of("steps.source", self.source, step_sources())
        _at_least(
            "steps.agreement_lead", self.agreement_lead, 1, "announcements need a step or more to reach all ranks"
        )
        _at_most("steps.agreement_lead", self.agreement_lead, MAX_WINDOW_STEPS, "3 steps are enough as a rule")


KEEP = ("all", "suspects", "none")
MAX_GB = 1e6


@dataclass(kw_only=True, slots=True)
class GatherConfig:
    """How the files of the ranks are moved to the run directory, and time limits for that."""

    keep: str = "all"
    """Which traces are moved to the run directory. ``all``: every trace. ``none``: only their columns, one file per
    node and window, which suffice for the report; a trace that could not be reduced is moved as a whole. ``suspects``:
    the columns of all ranks, and after the report is made from them, the traces of the ranks that it names, of one
    other rank for each, and of rank 0."""
    leave_free_gb: float = 1.0
    """Free space, in gigabytes, that is left on the disk of the run directory for the job and its checkpoints. A trace
    that would take it stays on the node's own disk."""
    most_gb: float = 0.0
    """Largest amount of traces, in gigabytes, that one node adds to a run; 0 is no limit. Further traces stay on the
    node's own disk."""

    timeout_s: float = 120.0
    """Longest time, in seconds, that the launcher waits after the end of the job for the traces of this node, and then
    again for the other nodes."""
    exit_grace_s: float = 10.0
    """Longest time, in seconds, by which a rank whose window is still open delays its exit to save the window."""

    def __post_init__(self) -> None:
        """Check the limits."""
        _one_of("gather.keep", self.keep, KEEP)
        for name in ("leave_free_gb", "most_gb"):
            _at_least(f"gather.{name}", getattr(self, name), 0, "use 0 for no limit")
            _at_most(f"gather.{name}", getattr(self, name), MAX_GB, "it is in gigabytes")
        _at_least("gather.timeout_s", self.timeout_s, 1, "give the files a second or more to arrive")
        _at_least("gather.exit_grace_s", self.exit_grace_s, 0, "use 0 to never hold up a process")
        for name in ("timeout_s", "exit_grace_s"):
            _at_most(f"gather.{name}", getattr(self, name), MAX_WAIT_S, "a report is not waited for longer than a day")


@dataclass(kw_only=True, slots=True)
class StoreConfig:
    """How the files of the run are protected."""

    encrypt: list[str] = field(default_factory=list)
    """Recipients for whom all files of a run are encrypted before they leave a node's own disk: recipients of age
    (age1..., or ssh-ed25519 ...), or files with such lines. Needs rankscope[encrypt]; see docs/privacy.md."""
    signing_key: str | None = None
    """File with an Ed25519 private key that signs run.json, for `rankscope verify`. Needs rankscope[sign]."""

    def __post_init__(self) -> None:
        """Refuse empty recipients."""
        if any(not word.strip() for word in self.encrypt):
            raise ConfigError("store.encrypt holds an empty recipient; write it as age1..., or leave it out")


@dataclass(kw_only=True, slots=True)
class AnalysisConfig:
    """What is done after the end of the job."""

    enabled: bool = True
    """Analyse the traces and write the report at once; otherwise ``rankscope analyze RUN`` does it later."""
    hta: bool = True
    """Include the analyses of Holistic Trace Analysis."""
    timeout_s: float = 600.0
    """Longest time, in seconds, for making the report. After it the launcher prints the command that makes the report
    later."""

    def __post_init__(self) -> None:
        """Check the limit."""
        _at_least("analysis.timeout_s", self.timeout_s, 1, "to make no report use analysis.enabled=false")
        _at_most("analysis.timeout_s", self.timeout_s, MAX_WAIT_S, "a report is not waited for longer than a day")


@dataclass(kw_only=True, slots=True)
class HangConfig:
    """When a job counts as standing still."""

    after_s: float = 60.0
    """Time in seconds without a step of any rank of a node, and without one for 20 usual steps, after which all ranks
    are asked where they are. Before the first step the time is five times as long. 0 never asks; the ranks then do not
    prepare to answer."""

    def __post_init__(self) -> None:
        """Check the limits."""
        if self.after_s:
            _at_least("hang.after_s", self.after_s, 1, "use 0 to never ask; 60 is a good start")
        _at_most("hang.after_s", self.after_s, MAX_WAIT_S, "a day without a step is a standstill; 0 is off")


@dataclass(kw_only=True, slots=True)
class StepLogConfig:
    """What the step log records in addition to host times."""

    device_events: bool = False
    """Whether the step log records how long the parts of each step take on the device. That takes five CUDA events per
    step, which are read after the device has reached them, without waiting, and about 0.1 ms of the host's time."""
    calls_pct: float = 0.25
    """Largest share of the time, in per cent, that reading torch's flight recorder may take; 0 to never read it. It
    shows when collectives are issued, and thus which rank is late inside of the backward. One read takes some 20 ms."""

    def __post_init__(self) -> None:
        """Check the share."""
        _at_least("step_log.calls_pct", self.calls_pct, 0, "use 0 to never read it")
        _at_most("step_log.calls_pct", self.calls_pct, 5, "more would be a burden to the job; 0.25 is the default")


LIVE_MODES = ("auto", "off", "line", "log")
TRACKERS = ("tensorboard", "mlflow", "wandb", "trackio")
"""Values of ``live.trackers``."""


@dataclass(kw_only=True, slots=True)
class LiveConfig:
    """What is reported while the job runs."""

    mode: str = "auto"
    """``auto`` and ``log``: a line on standard error after 1, 5 and 30 minutes and then every hour, and when the step
    logs name a rank or the job stands still. ``line``: one line on the terminal, redrawn repeatedly. ``off``: none."""
    metrics: bool = False
    """Whether RUN/metrics.prom (OpenMetrics text) is written every few seconds."""
    trackers: list[str] = field(default_factory=list)
    """Experiment trackers (``tensorboard``, ``mlflow``, ``wandb``, ``trackio``) into which rank 0 logs the numbers of
    ``rankscope.latest()`` every ten seconds, each only if the script has a run open in it."""

    def __post_init__(self) -> None:
        """Check the mode and the trackers."""
        _one_of("live.mode", self.mode, LIVE_MODES)
        for tracker in self.trackers:
            _one_of("live.trackers", tracker, TRACKERS)


@dataclass(kw_only=True, slots=True)
class ToolConfig:
    """The whole configuration."""

    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Which steps are recorded."""
    capture: CaptureConfig = field(default_factory=CaptureConfig)
    """What the profiler records."""
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    """How much may be recorded."""
    run: RunConfig = field(default_factory=RunConfig)
    """Where the run is stored."""
    steps: StepsConfig = field(default_factory=StepsConfig)
    """How steps are counted."""
    hang: HangConfig = field(default_factory=HangConfig)
    """When a job counts as standing still."""
    step_log: StepLogConfig = field(default_factory=StepLogConfig)
    """What is recorded of every step."""
    live: LiveConfig = field(default_factory=LiveConfig)
    """What is reported while the job runs."""
    gather: GatherConfig = field(default_factory=GatherConfig)
    """How files are moved to the run directory."""
    store: StoreConfig = field(default_factory=StoreConfig)
    """Whether the run is encrypted and signed."""
    analysis: AnalysisConfig = field(default_factory=AnalysisConfig)
    """What is done after the end of the job."""
    script: dict[str, Any] = field(default_factory=dict)
    """Arguments of the script: ``script.lr=0.1`` sets its ``--lr``, or ``lr=`` of a script of Hydra. ``true`` is a flag
    without a value; ``false`` and ``null`` omit the argument. Only for ``rankscope run`` and ``rankscope sweep``."""
    env: dict[str, str | None] = field(default_factory=dict)
    """Environment variables of the ranks: ``env.OMP_NUM_THREADS=2``. ``null`` removes a variable. Only for
    ``rankscope run`` and ``rankscope sweep``."""

    def __post_init__(self) -> None:
        """Refuse ``gather.keep=suspects`` without a report that decides which traces are kept."""
        if self.gather.keep == "suspects" and not (self.analysis.enabled and not self.store.encrypt):
            reason = "store.encrypt leaves" if self.store.encrypt else "analysis.enabled=false makes"
            raise ConfigError(
                f"gather.keep=suspects needs a verdict at the end of the job, and {reason} none there; "
                "use gather.keep=none, or all"
            )

    def refuse_experiment(self) -> None:
        """Refuse ``script`` and ``env``, for verbs that do not launch a script.

        Raises:
            ConfigError: arguments or variables are set.
        """
        if self.script or self.env:
            name = next(f"{kind}.{key}" for kind, own in (("script", self.script), ("env", self.env)) for key in own)
            raise ConfigError(f"{name} is for `rankscope run` and `rankscope sweep`; give it to the command itself")


def step_sources() -> tuple[str, ...]:
    """Return ``auto`` and the names of all step signals, from the files in agent/signals and from entry points."""
    folder = Path(__file__).parent / "agent" / "signals"
    ours = sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "base", "table"))
    theirs = [point.name for point in entry_points(group="rankscope.step_signals")]
    return ("auto", *ours, *theirs)


def to_agent_spec(config: ToolConfig, *, run_id: str, spool: Path) -> AgentSpec:
    """Return the specification for the ranks of one node.

    Args:
        config: the configuration.
        run_id: name of the run.
        spool: the spool of the node.
    """
    capture = CaptureSpec(**vars(config.capture))
    capture.activities, capture.ranks = list(capture.activities), capture.ranks.replace(" ", "")
    return AgentSpec(
        run_id=run_id,
        spool=str(spool),
        step_source=config.steps.source,
        schedule=ScheduleSpec(**vars(config.schedule)),
        capture=capture,
        agreement_lead=config.steps.agreement_lead,
        exit_grace_s=config.gather.exit_grace_s,
        budget=BudgetSpec(**vars(config.budget)),
        hang_after_s=config.hang.after_s,
        device_events=config.step_log.device_events,
        calls_share=config.step_log.calls_pct / 100.0,
        trackers=list(config.live.trackers),
    )
