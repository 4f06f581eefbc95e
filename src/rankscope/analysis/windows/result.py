"""The result of one window, which all later stages read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.accounting.idle import IdleTime
from rankscope.analysis.accounting.usage import Usage
from rankscope.analysis.clocks.alignment import Clocks
from rankscope.analysis.clocks.waits import Waits
from rankscope.analysis.links.slow_groups import SlowGroup
from rankscope.analysis.matching.collectives import Matched
from rankscope.analysis.rank.intervals import Spans
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.segments import Plan
from rankscope.analysis.replay.what_if import Replay
from rankscope.analysis.stragglers.cost import RankCost
from rankscope.analysis.stragglers.model_error import MESHES
from rankscope.analysis.stragglers.profile import Profile

__all__ = ["WindowResult", "once_per_window"]

T = TypeVar("T")


@dataclass(slots=True)
class WindowResult:
    """All results for one window that later stages read. Lists have one entry per rank, in order of ``views``."""

    attempt: int
    window: int
    views: list[RankView]
    usage: list[Usage]
    steps: list[list[Usage]]
    bounds: list[Spans]
    """Begin and end of each recorded step, own clock, by :func:`step_bounds`."""
    lengths: list[NDArray[np.int64]]
    """Duration of each recorded step, ns, by :func:`step_bounds`; on the device if any, as its host may run ahead."""
    matched: Matched
    clocks: Clocks
    waits: Waits
    idle: list[IdleTime]
    plan: Plan
    profiles: list[Profile]
    replay: Replay | None = None
    refused: str | None = None
    lateness: list[RankCost] = field(default_factory=list)
    slow_groups: list[SlowGroup] = field(default_factory=list)
    visible: float = inf
    """The share by which a device must be slower than the others to be distinguished from noise; infinite: unknown."""
    pipeline: bool = False
    """All ranks are stages: no rank has a peer that does the same work."""
    staged: bool = False
    """Some ranks are stages of a pipeline."""
    mesh: str = MESHES[0]
    """One of :data:`MESHES`."""
    notes: list[str] = field(default_factory=list)
    """Remarks on this window for the reader of the report."""
    left: dict[int, str] = field(default_factory=dict)
    """Ranks without numbers although they have a trace -> why."""
    partial: dict[int, str] = field(default_factory=dict)
    """Ranks whose trace is incomplete -> what is missing."""
    unsound: set[int] = field(default_factory=set)
    """Those of them that lost too much to be compared with others."""
    step_ns: float | None = None
    """The job's mean step over the steps that every rank recorded (:func:`step_length`)."""
    measured: dict[Callable[[WindowResult], object], object] = field(default_factory=dict, repr=False)
    """Results of the functions of later stages that are called :func:`once_per_window`."""

    @property
    def step_count(self) -> int:
        """Number of steps that every rank recorded."""
        return len(self.waits.steps.common)


def once_per_window(measure: Callable[[WindowResult], T]) -> Callable[[WindowResult], T]:
    """Return a function that measures a window when it is first called for it. The result is kept as long as the
    window, so it should be small."""

    @functools.wraps(measure)
    def measured(window: WindowResult) -> T:
        if measure not in window.measured:
            window.measured[measure] = measure(window)
        return cast("T", window.measured[measure])

    return measured
