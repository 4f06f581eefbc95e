"""The record of a cause. Each file of this folder defines one; none of them imports the analysis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from re import Pattern
from typing import Any, Protocol

__all__ = ["GARBAGE_COLLECTION", "Cause", "Facts", "HostExample", "HostTime", "Spans", "WorkComparison", "WorkExample"]

GARBAGE_COLLECTION = "garbage_collection"
"""A possible reason for a cause that is not a kind of finding: Python's garbage collector, timed in each rank."""

Spans = Any
"""Sorted, disjoint intervals, ns of the rank's own clock, as in ``analysis.rank.intervals``."""


class HostTime(Protocol):
    """Host time of one rank, as a cause can query it. Implemented by ``analysis.rank.host_time``."""

    def events(self, names: Pattern[str]) -> Spans:
        """Return the time in host events whose names match, on the threads that drive the training."""

    def calls(self, names: Pattern[str]) -> Spans:
        """Return the time in runtime and driver calls whose names match."""

    def loading(self) -> Spans:
        """Return the time in the data loader."""

    def copies_to_device(self) -> Spans:
        """Return the time in calls that copy to the device."""

    def silence(self) -> Spans:
        """Return the long intervals without any operator or call."""


class WorkComparison(Protocol):
    """The operators of a late rank, compared with those of a peer, in the segments where the rank is late."""

    operators: int
    """Number of operators of the peer."""
    extra_operators: int
    """Number of operators that the peer does not run, or runs less often."""
    other_shapes: int
    """Number of operators whose input shapes do not occur on the peer."""
    shapes_known: bool
    """Whether input shapes were recorded."""

    @property
    def other_grids(self) -> bool:
        """Whether the launch grids of the kernels differ."""


@dataclass(frozen=True, slots=True)
class HostExample:
    """An example step of 100 ms, and how much of its host time the cause accounts for."""

    events: tuple[tuple[str, str, float, float], ...]
    """Events of the main thread: (Kineto's category, name, start, length), in ms from the start of the step. An event
    on the device was launched by the last runtime call before it."""
    claims_ms: float
    """Host time that the cause accounts for, ms; 0 in an example that the cause must not match."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkExample:
    """An example comparison (fields as in :class:`WorkComparison`), and whether the cause explains the extra work."""

    claims: bool
    """Whether the cause explains the extra work."""
    operators: int = 100
    extra_operators: int = 0
    other_shapes: int = 0
    shapes_known: bool = True
    other_grids: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Facts about a late rank and its trace. Advice names them, and does not ask to record what is recorded already."""

    device: bool = True
    """Whether the job has accelerators; False for a job on CPUs."""
    shapes: bool = False
    """Whether input shapes of operators were recorded."""
    stacks: bool = False
    """Whether Python stacks were recorded."""
    operator: str = ""
    """Name of the operator with the most extra time; empty if unknown."""
    extra_calls: float = 0.0
    """Calls of that operator per step, more than on a peer."""
    line: str = ""
    """The user's function in which most of the time passes, ``evaluate() (train.py:212)``; empty if unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """A reason why a rank can be late.

    A cause is recognised by ``host_time`` or by ``more_work``; one with neither is assigned by the analysis.
    """

    name: str
    """Identifier, ``verdict.cause`` in report.json. It never changes."""
    phrase: str
    """The end of the sentence "Rank 1 holds the job back: ...", without a full stop."""
    noun: str
    """Noun phrase for titles, and for the activity on which milliseconds are spent."""
    advice: tuple[str, ...]
    """Remedies in whole sentences, the most promising first."""
    first_try: str
    """Where to look or what to change first, in a few words: a cell of the table in the guide."""
    needs: tuple[str, ...]
    """What a trace must contain for this cause to be recognised, mostly Kineto categories of events."""
    planted_by: str
    """Job that plants this fault with known truth: ``demo: NAME`` or ``benchmarks: NAME``; empty if there is none."""
    advise: Callable[[Facts], Sequence[str]] | None = None
    """Returns remedies that depend on the facts known about the rank; without it ``advice`` is used."""
    check: str = ""
    """How to verify that the remedy worked, in a few words."""
    host_time: Callable[[HostTime], Spans] | None = None
    """Returns the host time that this cause accounts for."""
    more_work: Callable[[WorkComparison], bool] | None = None
    """Returns whether this cause explains extra device work (operators on a CPU)."""
    examples: tuple[HostExample | WorkExample, ...] = ()
    """Examples that the cause matches and examples that it does not match, run as tests."""
    noisy: bool = False
    """Whether a busy machine alone can produce this cause: then the decision requires stronger evidence."""
    behind: tuple[str, ...] = ()
    """Kinds of findings (state of the device and host) that can be the reason for this cause on the late rank."""
    by_count: bool = False
    """Whether ranks are compared by the number of calls instead of their time."""

    def __post_init__(self) -> None:
        if self.host_time and self.more_work:
            raise ValueError(f"{self.name}: a cause is recognised by host time or by extra work, not by both")
        if self.phrase.endswith(".") or not all(line.endswith(".") for line in self.advice) or not self.advice:
            raise ValueError(f"{self.name}: the phrase ends a sentence, and each line of advice is one")

    def advice_for(self, facts: Facts) -> list[str]:
        """Return the remedies for this cause on a rank with these facts, in whole sentences."""
        return list(self.advise(facts) if self.advise is not None else self.advice)
