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
    """Which steps are recorded, counted in optimizer steps from 0, the same on every rank.

    One cycle is ``wait`` idle, ``warmup`` discarded and ``active`` recorded steps; cycles follow ``skip_first`` steps
    and come ``repeat`` times. With ``every`` the cycles begin that many steps apart and never end.
    """

    skip_first: Step = 10
    """Steps before the first cycle. They include compilation, allocator growth and cold caches, which are not
    typical."""
    wait: Step = 1
    """Idle steps at the start of each cycle."""
    warmup: WindowSteps = 2
    """Steps that the profiler records and discards. The first one includes the cost of attaching to the device."""
    active: WindowSteps = 6
    """Steps recorded in each cycle."""
    repeat: Annotated[int, Between(1, MAX_WINDOWS)] = 1
    """Number of cycles."""
    every: Step = 0
    """Continuous profiling: a cycle every this many steps, to the end of the job and within the budget. 0:
    ``repeat``."""

    def window(self, number: int) -> Window | None:
        """Return window ``number``, counted from 0; None after the last."""
        if number >= self.repeat and not self.every:
            return None
        cycle = self.every or self.wait + self.warmup + self.active
        first = self.skip_first + number * cycle + self.wait + self.warmup
        return Window(number=number, warm=first - self.warmup, first=first, last=first + self.active - 1)

    def next_window(self, completed: int) -> Window | None:
        """Return the first window that has not ended after so many completed steps; None after the last."""
        cycle = self.every or self.wait + self.warmup + self.active
        begins = self.skip_first + self.wait + self.warmup + self.active
        return self.window(max(-(-(completed + 1 - begins) // cycle), 0))


@dataclass(frozen=True, kw_only=True)
class Window:
    """Step numbers: ``warm`` is the first warm-up step, ``first`` to ``last`` (inclusive) are recorded."""

    number: WindowNumber
    warm: Step
    first: Step
    last: Step
    origin: str = "plan"
    """``plan``, ``slow_step``, ``pattern`` (steps that the step logs show to be slow), ``script``
    (:func:`rankscope.capture`), or the name of the request that it answers."""
    backend: str = "inline"
    """The backend that records it: a name of :mod:`rankscope.capture_backends`."""
    backend_reason: str | None = None
    """Why it is not the configured one."""
    detail: str = ""
    """A capture detail (:data:`DETAILS`) that a request asked for; empty for the configured detail."""

    counted_by: str = ""
    """The step signal that the announcing rank counts by; empty for a planned window."""

    def moved(self, first: int) -> Window:
        """Return the same window with another first step."""
        shift = first - self.first
        return dataclasses.replace(self, warm=self.warm + shift, first=first, last=self.last + shift)


@dataclass(kw_only=True)
class CaptureRequest:
    """What ``rankscope capture`` requests from a running job, or the script itself."""

    name: str
    steps: WindowSteps
    warmup: WindowSteps
    detail: str = ""
    at: Step = 0
    """The step to be recorded; with ``every``, that step or a later one of the series. 0: as soon as possible."""
    every: Step = 0
    reason: str = ""
    """Why the script requests it, for the report; ``at`` is then the step in which it did."""


DETAILS = ("shapes", "stacks", "memory")
"""What a request may add to the configured capture: input shapes; those and Python stacks; allocations."""


@dataclass(kw_only=True)
class CaptureSpec:
    """What the profiler records, by the names of ``torch.profiler.profile``. By default nothing that costs extra."""

    activities: list[str] = field(default_factory=lambda: ["auto"])
    """``auto`` records the CPU and the device that the job uses; else any of ``cpu``, ``cuda``, ``xpu``."""
    record_shapes: bool = False
    """Input shapes of operators; events become about 10 % larger."""
    with_stack: bool = False
    """Python stacks: nine times the events, and slower steps while recording."""
    profile_memory: bool = False
    """Allocations and releases."""
    with_flops: bool = False
    """Estimated FLOPs of matrix products and convolutions, in the trace only; implies shapes."""
    with_modules: bool = False
    """Module hierarchy of operators (TorchScript only), in the trace only."""
    backend: str = "auto"
    """The backend: a name of :mod:`rankscope.capture_backends`. ``auto`` and ``inline`` are torch.profiler, which
    blocks the training thread while a window closes. With ``cuda_profiler`` rankscope records nothing itself: it marks
    the window for ``nsys profile -c cudaProfilerApi``. For ``kineto`` and ``kineto_alone``, which used libkineto's own
    threads and could end a job, torch.profiler records instead, and the records say why."""
    memory_snapshot: bool = False
    """CUDA memory history of each window and at an out-of-memory error, for PyTorch's memory viewer."""
    ranks: str = "all"
    """Which ranks record: ``all``, ``first-of-node``, or numbers separated by commas. All ranks agree on the
    windows."""


@dataclass(kw_only=True)
class BudgetSpec:
    """Limits of what is recorded beyond the planned windows: on request, periodically, and after slow steps."""

    windows: Annotated[int, Between(1, MAX_WINDOWS)] = 20
    """Largest number of windows of a run."""
    megabytes: float = 2000.0
    """Size of the compressed traces of a node, in 10^6 bytes, from which on no further window opens."""
    step_pct: float = 5.0
    """Largest share of steps, in per cent of those counted, that periodic windows and windows after slow steps may
    record."""
    slow_step: float = 0.0
    """A step that takes longer than this many usual ones opens a window, except among the first 64; 0: never; 3 is a
    good start."""


@dataclass(kw_only=True)
class AgentSpec:
    """All that a rank must know; written once by the launcher, read by every rank of its node."""

    run_id: str
    spool: str
    """Folder on this node's local disk where ranks leave traces for the node helper."""
    step_source: str
    """``auto`` or the name of one step detector."""
    schedule: ScheduleSpec
    capture: CaptureSpec
    agreement_lead: WindowSteps
    """How many steps before a window opens it is announced at the latest."""
    exit_grace_s: float
    """Longest time in seconds for which the agent may delay the exit of a process whose window is still open."""
    budget: BudgetSpec
    hang_after_s: float = 60.0
    """Time in seconds without a step, and at least 20 usual steps, after which ranks are asked for their state; 0:
    never."""
    device_events: bool = False
    """Whether the step log also has device times."""
    calls_share: float = 0.0
    """Share of the time that reading torch's flight recorder between windows may take; 0: it is not read."""
    trackers: list[str] = field(default_factory=list)
    """Experiment trackers into which rank 0 logs the key numbers of the job, if the script has them open."""
    reaches_other_nodes: bool = False
    """Whether there may be ranks on other nodes that the variables of a rank do not show (:func:`rankscope.attach`)."""
