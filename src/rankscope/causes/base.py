"""What a cause is: one record, given by one file of this folder. None of them imports the analysis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from re import Pattern
from typing import Any, Protocol

__all__ = ["GARBAGE_COLLECTION", "Cause", "Facts", "HostExample", "HostTime", "Spans", "WorkComparison", "WorkExample"]

GARBAGE_COLLECTION = "garbage_collection"
"""A possible reason for a cause beside the kinds of findings: Python's garbage collector, timed by the rank itself."""

Spans = Any
"""Sorted, disjoint intervals, ns of the rank's own clock, as in ``analysis.rank.intervals``."""


class HostTime(Protocol):
    """Host time of one rank, as a cause may query it. Implemented by ``analysis.rank.host_time``."""

    def events(self, names: Pattern[str]) -> Spans:
        """Time in host events of such names, on the threads that drive the training."""

    def calls(self, names: Pattern[str]) -> Spans:
        """Time in runtime and driver calls of such names."""

    def loading(self) -> Spans:
        """Time in the data loader."""

    def copies_to_device(self) -> Spans:
        """Time in calls that copy to the device."""

    def silence(self) -> Spans:
        """Long stretches without any operator or call."""


class WorkComparison(Protocol):
    """A late rank's operators against a peer's, in the segments where it is late."""

    operators: int
    """Of the peer."""
    extra_operators: int
    """That the peer does not run, or fewer of."""
    other_shapes: int
    """Operators whose input shapes the peer does not have."""
    shapes_known: bool

    @property
    def other_grids(self) -> bool:
        """Whether the kernels' launch grids differ."""


@dataclass(frozen=True, slots=True)
class HostExample:
    """A step of 100 ms, and how much of its host time the cause accounts for."""

    events: tuple[tuple[str, str, float, float], ...]
    """(Kineto's category, name, start, length) of events of the main thread, ms from the start of the step. An event on
    the device was launched by the last runtime call before it."""
    claims_ms: float
    """0 in an example of what the cause must leave alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkExample:
    """A comparison as :class:`WorkComparison` has it, and whether the extra work is of the cause's kind."""

    claims: bool
    operators: int = 100
    extra_operators: int = 0
    other_shapes: int = 0
    shapes_known: bool = True
    other_grids: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known of a late rank and of its trace, so that advice names it and does not ask for what there is."""

    device: bool = True
    """False: the job runs on CPUs."""
    shapes: bool = False
    """Shapes of operators were recorded."""
    stacks: bool = False
    """Python's stacks were recorded."""
    operator: str = ""
    """Name of the operator with most extra time; empty where none is known."""
    extra_calls: float = 0.0
    """Of that operator beyond a peer's, per step."""
    line: str = ""
    """The user's function in which most of the time passes: ``evaluate() (train.py:212)``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Why a rank can be late. At most one of ``host_time`` and ``more_work`` says how it is recognised."""

    name: str
    """``verdict.cause`` in report.json: it never changes."""
    phrase: str
    """The end of "Rank 1 holds the job back: ...", without a full stop."""
    noun: str
    """The end of a title, or what milliseconds are spent on."""
    advice: tuple[str, ...]
    """What to do, most promising first. Whole sentences."""
    first_try: str
    """Where to look or what to change first, in a few words: a cell of the guide's table."""
    needs: tuple[str, ...]
    """What a trace must hold for this cause to be seen."""
    planted_by: str
    """Where the fault is planted with known truth: ``demo: NAME`` or ``benchmarks: NAME``; empty where it cannot be."""
    advise: Callable[[Facts], Sequence[str]] | None = None
    """What to do where more is known than the cause; without it ``advice``."""
    check: str = ""
    """How to see that it worked, in a few words."""
    host_time: Callable[[HostTime], Spans] | None = None
    """Host time that this cause accounts for."""
    more_work: Callable[[WorkComparison], bool] | None = None
    """Whether extra device work (operators on a CPU) is of this kind."""
    examples: tuple[HostExample | WorkExample, ...] = ()
    """What it accounts for and what it leaves alone: at least one of each. They are tests, and show how it is meant."""
    noisy: bool = False
    """Whether a busy machine causes it by itself: then the decision takes more proof."""
    behind: tuple[str, ...] = ()
    """What can be the reason for this cause on the late rank: kinds of findings on the state of its device and host."""
    by_count: bool = False
    """Whether the number of its calls is compared between ranks, and not their time."""

    def __post_init__(self) -> None:
        if self.host_time and self.more_work:
            raise ValueError(f"{self.name}: a cause is recognised by host time or by extra work, not by both")
        if self.phrase.endswith(".") or not all(line.endswith(".") for line in self.advice) or not self.advice:
            raise ValueError(f"{self.name}: the phrase ends a sentence, and each line of advice is one")

    def advice_for(self, facts: Facts) -> list[str]:
        """What to do about this cause on the rank of which these facts are known."""
        return list(self.advise(facts) if self.advise is not None else self.advice)
