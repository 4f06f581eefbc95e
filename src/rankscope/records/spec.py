"""Launcher to ranks: what to record and when (``agent.json``)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated

from rankscope.limits import MAX_WINDOWS, Between, Step, WindowNumber, WindowSteps

__all__ = [
    "DETAILS",
    "AgentSpec",
    "BudgetSpec",
    "CaptureRequest",
    "CaptureSpec",
    "ScheduleSpec",
    "Window",
]


@dataclass(kw_only=True)
class ScheduleSpec:
    """Which steps are recorded. Counted in optimizer steps from 0, the same on every rank.

    One cycle is ``wait`` idle, ``warmup`` discarded and ``active`` recorded steps; cycles follow
    ``skip_first`` steps and come ``repeat`` times. With ``every`` the cycles begin that many steps apart and never end.
    """

    skip_first: Step = 10
    """Steps before the first cycle: compilation, allocator growth and cold caches are not the job."""
    wait: Step = 1
    """Idle steps at the start of each cycle."""
    warmup: WindowSteps = 2
    """Steps that the profiler records and discards. The first one pays for attaching to the device."""
    active: WindowSteps = 6
    """Steps recorded in each cycle."""
    repeat: Annotated[int, Between(1, MAX_WINDOWS)] = 1
    """Number of cycles."""
    every: Step = 0
    """Continuous profiling: a cycle every so many steps, to the end of the job and within the budget. 0: ``repeat``."""

    def window(self, number: int) -> Window | None:
        """Window ``number`` from 0, None after the last."""
        if number >= self.repeat and not self.every:
            return None
        cycle = self.every or self.wait + self.warmup + self.active
        first = self.skip_first + number * cycle + self.wait + self.warmup
        return Window(number=number, warm=first - self.warmup, first=first, last=first + self.active - 1)


@dataclass(frozen=True, kw_only=True)
class Window:
    """Step numbers: ``warm`` is the first warm-up step, ``first`` to ``last`` (inclusive) are recorded."""

    number: WindowNumber
    warm: Step
    first: Step
    last: Step
    origin: str = "plan"
    """``plan``, ``slow_step``, ``pattern`` (steps that the step logs have shown to be slow), or the name of the request
    it answers."""
    backend: str = "inline"
    """What records it: a name of :mod:`rankscope.capture_backends`."""
    backend_reason: str | None = None
    """Why not the configured one."""
    detail: str = ""
    """A capture detail (:data:`DETAILS`) that a request asked for; empty for what was configured."""

    counted_by: str = ""
    """The step signal by which who announced it counts; empty for a plan."""

    def moved(self, first: int) -> Window:
        """The same window with another first step."""
        shift = first - self.first
        return dataclasses.replace(self, warm=self.warm + shift, first=first, last=self.last + shift)


@dataclass(kw_only=True)
class CaptureRequest:
    """What ``rankscope capture`` asks of a running job."""

    name: str
    steps: WindowSteps
    warmup: WindowSteps
    detail: str = ""
    at: Step = 0
    """A step that is to be recorded, or one that comes ``every`` so many steps after it; 0: as soon as possible."""
    every: Step = 0


DETAILS = ("shapes", "stacks", "memory")
"""What a request may ask to be recorded besides the configured: input shapes; those and Python stacks; allocations."""


@dataclass(kw_only=True)
class CaptureSpec:
    """What the profiler records, by the names of ``torch.profiler.profile``. Nothing that costs extra by default."""

    activities: list[str] = field(default_factory=lambda: ["auto"])
    """``auto`` records the CPU and whatever device the job uses; else any of ``cpu``, ``cuda``, ``xpu``."""
    record_shapes: bool = False
    """Input shapes of operators; events become about 10 % larger."""
    with_stack: bool = False
    """Python stacks: nine times the events, and slow steps while recording."""
    profile_memory: bool = False
    """Allocations and releases."""
    with_flops: bool = False
    """Estimated FLOPs of matrix products and convolutions, in the trace only; implies shapes."""
    with_modules: bool = False
    """Module hierarchy of operators (TorchScript only), in the trace only."""
    backend: str = "auto"
    """Who records: a name of :mod:`rankscope.capture_backends`. ``auto`` and ``inline`` are torch.profiler, which stops
    the training thread while a window closes. With ``cuda_profiler`` rankscope records nothing itself: it marks the
    window for ``nsys profile -c cudaProfilerApi``. For ``kineto`` and ``kineto_alone``, libkineto's own threads, which
    can end a job, torch.profiler records, and the records say why."""
    memory_snapshot: bool = False
    """CUDA memory history of each window and at an out-of-memory error, for PyTorch's memory viewer."""
    ranks: str = "all"
    """Which ranks record: ``all``, ``first-of-node``, or numbers separated by commas. All stay in step."""


@dataclass(kw_only=True)
class BudgetSpec:
    """How much may be recorded beyond the planned windows: on request, every so often, and after slow steps."""

    windows: Annotated[int, Between(1, MAX_WINDOWS)] = 20
    """Most windows of a run."""
    megabytes: float = 2000.0
    """Compressed traces of a node, in 10^6 bytes, after which no further window opens."""
    step_pct: float = 5.0
    """Most steps, in per cent of those counted, that periodic windows and windows after slow steps may record."""
    slow_step: float = 0.0
    """A step that takes longer than so many usual ones opens a window, except among the first 64; 0 never does, 3 is a
    good start."""


@dataclass(kw_only=True)
class AgentSpec:
    """All that a rank must know; written once by the launcher, read by every rank of its node."""

    run_id: str
    spool: str
    """Folder on this node's own disk where ranks leave traces for the node helper."""
    step_source: str
    """``auto`` or the name of one step detector."""
    schedule: ScheduleSpec
    capture: CaptureSpec
    agreement_lead: WindowSteps
    """How many steps before a window opens its start is announced at the latest."""
    exit_grace_s: float
    """Longest time the agent may hold up the end of a process whose window is still open."""
    budget: BudgetSpec
    hang_after_s: float = 60.0
    """After so many seconds without a step, and 20 usual ones, the ranks are asked where they stand; 0: never."""
    device_events: bool = False
    """The step log has the device's own times, too."""
    reaches_other_nodes: bool = False
    """There may be ranks on other nodes, of which the variables of a rank tell nothing (:func:`rankscope.attach`)."""
