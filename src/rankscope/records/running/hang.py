"""Why a job stands still: what each rank answers when it is asked, and what follows from all answers together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.limits import Attempt, Count, Rank, Step, WorldSize

__all__ = ["Call", "HangKind", "HangVerdict", "NodeAnswers", "RankAnswer", "RankState", "Stage", "ThreadStack"]

Stage = Literal["began", "rendezvous", "group"]
"""Of a rank that has made no step: torch is imported; it is in ``init_process_group``; that has returned."""

HangKind = Literal[
    "not_entered", "skipped", "order", "kinds", "sizes", "all_in", "stopped", "gone", "waits_elsewhere", "long",
    "unknown",
]  # fmt: skip


@dataclass(kw_only=True)
class Call:
    """One communication call, from torch's flight recorder."""

    group: str
    """Name of the process group on this rank."""
    seq: Count
    """Its number among the group's collectives."""
    name: str
    """``gloo:all_reduce``"""
    done: bool
    sizes: list[list[int]] = field(default_factory=list)
    """Shapes of its inputs."""
    dtype: str = ""
    created_ns: Count = 0
    """CLOCK_REALTIME"""
    message: bool = False
    """A send or receive between two ranks, which has no number that others share."""


@dataclass(kw_only=True)
class ThreadStack:
    """A thread of Python: innermost frame last, ``file:line in function``."""

    name: str
    training: bool
    frames: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class RankAnswer:
    """What a rank says when it is asked."""

    rank: Rank
    attempt: Attempt
    token: Count
    """Of the question."""
    time_ns: Count
    steps: Step
    part: str
    """Where in its step the training thread is: before, forward, backward, after."""
    stacks: list[ThreadStack] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    """The last ones of each group, oldest first."""
    groups: dict[str, list[Rank]] = field(default_factory=dict)
    """Name of each process group on this rank -> its ranks, where that is known."""
    recorder: bool = False
    """Whether this torch keeps a record of the calls."""


@dataclass(kw_only=True)
class RankState:
    """A rank as its node's helper sees it from outside, and what it has answered."""

    rank: Rank
    pid: Count
    state: str = ""
    """The kernel's letter: R runs, S and D sleep, T is stopped, Z has ended; empty: gone."""
    steps: Step = 0
    idle_s: float = 0.0
    """Since its last step."""
    advances: bool = False
    """Between two questions a frame, a call or a step has changed."""
    cpu_s: float = 0.0
    """CPU time of its main thread between the two questions."""
    switches: Count = 0
    """How often that thread began to wait between them: one that stands still does not."""
    stage: str = ""
    """A :data:`Stage`; empty where it is not known, and once a step was made."""
    stacks: list[ThreadStack] = field(default_factory=list)
    """Of a rank that does not answer, as py-spy sees them from outside, where that is installed and permitted."""
    answer: RankAnswer | None = None


@dataclass(kw_only=True)
class NodeAnswers:
    """All ranks of a node, in a file of the run directory."""

    node: str
    """As the node has claimed the run directory."""
    attempt: Attempt
    world_size: WorldSize
    time_ns: Count
    after_s: float
    """After so long without a step the ranks were asked."""
    asked: bool = False
    """A person has asked, and nothing may be wrong."""
    resumed: bool = False
    """Steps went on afterwards."""
    ranks: list[RankState] = field(default_factory=list)


@dataclass(kw_only=True)
class HangVerdict:
    """What follows from the answers of all ranks."""

    kind: HangKind
    """A rank has not entered a call of the others; has skipped one; calls in another order; calls something else; with
    other sizes; all are in and nothing moves; is stopped by a signal; has ended; the ranks wait in different places;
    something still advances; nothing is known."""
    ranks: list[Rank] = field(default_factory=list)
    """Whose doing it is."""
    group: str = ""
    seq: Count = 0
    sentence: str = ""
    why: list[str] = field(default_factory=list)
    next: str = ""
    time_ns: Count = 0
    """When the ranks were asked."""
    idle_s: float = 0.0
    """Since the last step; since the last sign of progress where none was made."""
    stepped: bool = True
    """Whether any rank has made a step."""
    resumed: bool = False
