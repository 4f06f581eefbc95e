"""Launcher to ranks: what to record and when (``agent.json``)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from rankscope.records.limits import MAX_WINDOWS, Between, Step, WindowNumber, WindowSteps

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

    skip_first: Step
    wait: Step
    warmup: WindowSteps
    active: WindowSteps
    repeat: Annotated[int, Between(1, MAX_WINDOWS)]
    every: Step = 0

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
    """``plan``, ``slow_step``, or the name of the request it answers."""
    backend: str = "inline"
    """What records it: a name of :mod:`rankscope.capture_backends`."""
    backend_reason: str | None = None
    """Why not the configured one."""
    detail: str = ""
    """A capture detail (:data:`DETAILS`) that a request asked for; empty for what was configured."""

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


DETAILS = ("shapes", "stacks", "memory")
"""What a request may ask to be recorded besides the configured: input shapes; those and Python stacks; allocations."""


@dataclass(kw_only=True)
class CaptureSpec:
    """What the profiler records. The names are those of ``torch.profiler.profile``."""

    activities: list[str]
    record_shapes: bool
    with_stack: bool
    profile_memory: bool
    with_flops: bool
    with_modules: bool
    backend: str = "inline"
    """A name of :mod:`rankscope.capture_backends`."""
    memory_snapshot: bool = False
    """CUDA memory history of each window, for PyTorch's memory viewer."""
    ranks: str = "all"
    """``all``, ``first-of-node``, or ranks separated by commas."""


@dataclass(kw_only=True)
class BudgetSpec:
    """Limits of what windows beyond the planned ones may cost."""

    windows: Annotated[int, Between(1, MAX_WINDOWS)]
    """At most so many windows in a run."""
    megabytes: float
    """No further window once a node has gathered so much (compressed)."""
    step_pct: float
    """At most so many percent of the steps so far may be recorded by windows nobody planned."""
    slow_step: float
    """A step slower than so many usual ones asks for a window; 0 never does."""


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
