"""Why a job makes no progress: the answer of each rank, and the conclusion from all answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.limits import Attempt, Count, Rank, Step, WorldSize

__all__ = ["Call", "HangKind", "HangVerdict", "NodeAnswers", "RankAnswer", "RankState", "Stage", "ThreadStack"]

Stage = Literal["began", "rendezvous", "group"]
"""Stage of a rank that has made no step: torch is imported; it is in ``init_process_group``; that has returned."""

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
    """Its sequence number among the group's collectives."""
    name: str
    """For instance ``gloo:all_reduce``."""
    done: bool
    sizes: list[list[int]] = field(default_factory=list)
    """Shapes of its inputs."""
    dtype: str = ""
    created_ns: Count = 0
    """Time of issue, CLOCK_REALTIME."""
    message: bool = False
    """Whether it is a send or receive between two ranks, which has no number that ranks share."""
    peer: Rank | None = None
    """Of a message: the other rank, where known."""
    root: Rank | None = None
    """Of a call such as broadcast that has not ended: the rank that sends to, or receives from, all others, where
    known."""


@dataclass(kw_only=True)
class ThreadStack:
    """A thread of Python: innermost frame last, ``file:line in function``."""

    name: str
    training: bool
    frames: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class RankAnswer:
    """The answer of a rank to a question."""

    rank: Rank
    attempt: Attempt
    token: Count
    """Number of the question."""
    time_ns: Count
    steps: Step
    part: str
    """The part of its step that the training thread is in: before, forward, backward, after."""
    stacks: list[ThreadStack] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    """The last calls of each group, oldest first."""
    groups: dict[str, list[Rank]] = field(default_factory=dict)
    """Name of each process group on this rank -> its ranks, where known."""
    recorder: bool = False
    """Whether this torch has a flight recorder of the calls."""


@dataclass(kw_only=True)
class RankState:
    """State of a rank as its node's helper observes it from outside, and its answer."""

    rank: Rank
    pid: Count
    state: str = ""
    """The kernel's letter: R runs, S and D sleep, T is stopped, Z has ended; empty: the process is gone."""
    steps: Step = 0
    idle_s: float = 0.0
    """Time since its last step."""
    advances: bool = False
    """Whether a frame, a call or a step has changed between two questions."""
    cpu_s: float = 0.0
    """Time between the two questions in which its main thread ran, or was ready to run on a busy machine."""
    others_s: float = 0.0
    """The same for its other threads together, and for the processes that it has started."""
    kernel: str = ""
    """Function of the kernel in which its main thread waits, as ``/proc/PID/wchan`` has it; empty if unknown."""
    switches: Count = 0
    """How often that thread was switched out between them because it waited; 0 for one that makes no progress."""
    stage: str = ""
    """A :data:`Stage`; empty if unknown, and once a step was made."""
    stacks: list[ThreadStack] = field(default_factory=list)
    """Stacks of a rank that does not answer, read from outside by py-spy where that is installed and permitted."""
    answer: RankAnswer | None = None


@dataclass(kw_only=True)
class NodeAnswers:
    """All ranks of a node, in a file of the run directory."""

    node: str
    """The name by which the node claimed the run directory."""
    attempt: Attempt
    world_size: WorldSize
    time_ns: Count
    after_s: float
    """Time without a step after which the ranks were asked."""
    asked: bool = False
    """Whether the user asked, so that nothing need be wrong."""
    resumed: bool = False
    """Whether steps continued afterwards."""
    ranks: list[RankState] = field(default_factory=list)


@dataclass(kw_only=True)
class HangVerdict:
    """The conclusion from the answers of all ranks."""

    kind: HangKind
    """A rank has not entered a call of the others; has skipped one; calls in another order; calls another operation;
    calls with other sizes; all have entered and nothing moves; is stopped by a signal; has ended; the ranks wait in
    different places; something still advances; nothing is known."""
    ranks: list[Rank] = field(default_factory=list)
    """The ranks that cause it."""
    group: str = ""
    seq: Count = 0
    sentence: str = ""
    why: list[str] = field(default_factory=list)
    next: str = ""
    time_ns: Count = 0
    """When the ranks were asked."""
    idle_s: float = 0.0
    """Time since the last step; if none was made, since the last sign of progress."""
    stepped: bool = True
    """Whether any rank has made a step."""
    resumed: bool = False
