"""What the analysis passes to the rules: numbers, no traces. Milliseconds and per cent unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.records.rows import Efficiency, HealthRow, MemoryRow
from rankscope.records.run_steps import RunSteps

__all__ = [
    "Anomaly",
    "Contention",
    "Evidence",
    "GroupDelay",
    "JobEnded",
    "OperatorExcess",
    "Place",
    "RankCpu",
    "Suspect",
]


FEWEST_STEPS = 5
"""Unrecorded steps from which on their median is the job's step."""


@dataclass(kw_only=True)
class OperatorExcess:
    """An operator that takes more of a step on one rank than on its peers. Per step; ms of device time, without a
    device of its own time."""

    name: str
    calls: float
    peers_calls: float
    ms: float
    peers_ms: float
    line: str = ""
    """The user's function with most of the extra calls, ``evaluate() (train.py:212)``; empty without stacks."""


@dataclass(kw_only=True)
class Suspect:
    """One rank and what the job would gain if its concentrated excess were gone (by replay)."""

    rank: int
    cost_ms: float
    """Per step, over all recorded steps."""
    error_ms: float
    gains_ms: list[float]
    """Per recorded step."""
    measured: bool = False
    """The cost is that of the rank's whole work, measured against its peers', and ``error_ms`` its 95 % interval: it
    decides by itself."""
    p_value: float | None = None
    """Sign-flip test over steps; None when no step gains."""
    excess_ms: float = 0.0
    """Own work beyond the peers' in the segments where it is late, per step."""
    explained: dict[str, float] = field(default_factory=dict)
    """Cause -> ms per step of that excess."""
    uniform: float = 1.0
    """Even slowness of the host, not part of the cost."""
    beside: list[int] = field(default_factory=list)
    """Other ranks at fault. Late at the same place, they hide each other: the cost is that of this rank once they are
    equalised; empty where it is the cost of this rank alone."""
    together_ms: float = 0.0
    """What the step would gain with this rank and those ``beside`` at the level of their peers; 0 where there are
    none."""
    caused_wait_ms: float = 0.0
    """Waiting of others for this rank, per step. Not a cost."""
    held_ms: float = 0.0
    """How long the group that waits most for this rank does so, per step: mean over its other ranks."""
    lost: list[int] = field(default_factory=list)
    """Ranks without a trace that share another group with it."""
    lost_group: str = ""
    """That group, by name and ranks."""
    operators: list[OperatorExcess] = field(default_factory=list)
    """That it runs more of, or for longer, than a peer, most time first. Only of ranks that cost something."""
    lines: dict[str, dict[str, float]] = field(default_factory=dict)
    """Cause -> the user's functions in which that host time passes -> ms per step. Empty without stacks."""


@dataclass(kw_only=True)
class Anomaly:
    """A rank that spends more on something than its peers, whether or not it costs the job anything."""

    rank: int
    cause: str
    own_ms: float
    peers_ms: float
    own_count: float | None = None
    peers_count: float | None = None


@dataclass(kw_only=True)
class RankCpu:
    """What the scheduler says of one rank's recorded steps, one value each; see :class:`records.rank.ThreadTimes`."""

    rank: int
    host: str
    held_ms: list[float]
    """Its threads that drive the training could run, and others held the CPUs. What the script's own other threads ran
    on this rank more than on its peers is not in it: that is the rank's doing."""
    cpu_ms: list[float]
    """Those threads ran."""
    own_ms: list[float] = field(default_factory=list)
    """Host time of the step less waiting for peers and less ``held_ms``: what the rank itself took. Empty where that
    is not known (a device decides when the host waits)."""
    least_ms: list[float] = field(default_factory=list)
    """``own_ms`` at the least: all time without an operator, while a call was under way, taken for waiting."""
    named_ms: dict[str, list[float]] = field(default_factory=dict)
    """Cause -> host time that it accounts for in the trace, run queue included."""
    script_ms: list[float] = field(default_factory=list)
    """CPU time of the script's own other threads."""


@dataclass(kw_only=True)
class Contention:
    """How long other processes on the machine delayed the ranks. Lists of the ranks are equally long."""

    ranks: list[RankCpu]
    gains_ms: list[float]
    """What each step would gain on a free machine: by replay, else what the least held up rank was."""
    others_ms: dict[str, float] = field(default_factory=dict)
    """Host -> CPU time per step of processes that are not the job's, on the CPUs it may use. Only where it is known."""
    cpus: dict[str, float] = field(default_factory=dict)
    """Host -> CPUs the job may use there."""

    @property
    def cost_ms(self) -> float:
        """Per step."""
        return sum(self.gains_ms) / len(self.gains_ms) if self.gains_ms else 0.0

    def of(self, rank: int) -> RankCpu | None:
        """One rank's, where it is known."""
        return next((r for r in self.ranks if r.rank == rank), None)


@dataclass(kw_only=True)
class GroupDelay:
    """A process group whose transfers take longer than those of like groups, and what that costs a step."""

    ranks: list[int]
    kinds: list[str]
    ratio: float
    cost_ms: float
    error_ms: float


@dataclass(kw_only=True)
class Place:
    """Ranks with a usable trace that share a host, a process group, or their position on every host (a rail)."""

    kind: Literal["host", "group", "rail"]
    name: str
    """Of the host or of the group; the local rank."""
    ranks: list[int]


@dataclass(kw_only=True)
class JobEnded:
    """How a job ended that left no usable trace, as far as its manifest says."""

    exit_code: int | None
    steps: int
    """Most that a rank counted."""
    traces: bool
    """Whether files of traces are there all the same."""
    notes: list[str] = field(default_factory=list)
    """Why nothing was recorded, in words."""


@dataclass(kw_only=True)
class Evidence:
    """Everything a verdict rests on."""

    ranks: list[int]
    missing: list[int] = field(default_factory=list)
    lost: dict[str, list[int]] = field(default_factory=dict)
    """Why a rank left no usable trace, in words -> those ranks."""
    ended: JobEnded | None = None
    """None where there is no manifest."""
    incomplete: dict[int, str] = field(default_factory=dict)
    """Ranks whose trace lacks device records -> how many, in words."""
    unsound: list[int] = field(default_factory=list)
    """Of those, ranks that lost too much to be compared with others."""
    steps: int = 0
    step_ms: float | None = None
    """The job's mean step, over the steps that all ranks recorded: costs and shares refer to it."""
    mean_step_ms: float | None = None
    """The mean step of the slowest rank over its own recorded steps, of which some may not be in ``step_ms``."""
    device: bool = True
    visible_pct: float | None = None
    """How much slower than the others a device must be to be told from noise, in 19 of 20 such windows; None: not
    known."""
    screened: bool = False
    """No rank was asked what it costs, since none makes others wait for as long as that would matter."""
    world_size: int | None = None
    """Ranks of the job, those that were not recorded included; None where nobody says."""
    compute_ms: dict[int, float] = field(default_factory=dict)
    """Rank -> compute per step."""
    uses: list[str] = field(default_factory=list)
    """What is seen in the trace to be in use: ``ddp``, ``fsdp1``, ``fsdp2``, ``compile``, ``cuda_graphs``,
    ``fused_optimizer``, ``foreach_optimizer``."""
    shapes: bool = False
    """Shapes of operators were recorded; likewise the next, Python's stacks, which make a host several times slower."""
    stacks: bool = False
    often: str = ""
    """The operator that is called most often in a step, of those that do device work; empty where none is known."""
    often_calls: float = 0.0
    """A step."""
    host_lines: dict[str, float] = field(default_factory=dict)
    """Where the Python of the rank that idles most for its host is: function -> ms per step by itself. With stacks."""
    run_steps: RunSteps | None = None
    """All steps of the run, recorded or not; None where no step log was kept."""
    calls: int = 0
    matched_pct: float | None = None
    unmatched: dict[str, int] = field(default_factory=dict)
    """Why calls could not be matched, in words -> how many, the most frequent reason first."""
    clock_spread_us: float = 0.0
    """Typical residual of the clocks' alignment."""
    refused: str | None = None
    """Why no replay was made or trusted."""
    pipeline: bool = False
    """Ranks of different stages talk point to point and none has a peer; waiting is the schedule."""
    staged: bool = False
    """Some ranks are stages, and have peers to compare with."""
    places: list[Place] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    slow_groups: list[GroupDelay] = field(default_factory=list)
    """The costliest first."""
    compute_pct: float = 0.0
    exposed_comm_pct: float = 0.0
    overlap_pct: float | None = None
    """Share of communication hidden behind compute."""
    idle_pct: float = 0.0
    waiting_ms: float = 0.0
    transfer_ms: float = 0.0
    """Exposed, per step, mean over ranks."""
    input_ms: float = 0.0
    host_ms: float = 0.0
    """Idle for the host, recording's part included."""
    most_host_ms: float | None = None
    """The same of the rank with most of it: what a host without overhead can gain at most."""
    recording_ms: float = 0.0
    """What recording adds to a step: recorded steps against those before the window; 0 where it was not measured."""
    copy_ms: float = 0.0
    allocator_ms: float = 0.0
    """Host time in which device memory is taken and given back (cudaMalloc, cudaFree), per step, of the rank in the
    middle."""
    kernel_us: float | None = None
    """Median duration of a compute kernel."""
    launches: float = 0.0
    """Kernels per step and rank."""
    network_gain_ms: float | None = None
    """What an infinitely fast network would gain per step (replay)."""
    host_gain_ms: float | None = None
    """What a host without overhead would gain per step (replay)."""
    overlap_gain_ms: float | None = None
    """What hiding all transfers behind other work would gain per step (replay)."""
    balance_gain_ms: float | None = None
    """What device work shared out evenly would gain per step (replay)."""
    work_gains: dict[str, float] = field(default_factory=dict)
    """Kind of kernels -> what the step would gain if they took no time (replay)."""
    efficiency: Efficiency | None = None
    """None without a device or without steps."""
    modules: dict[str, float] = field(default_factory=dict)
    """FSDP module or DDP bucket -> exposed communication per step, waiting included, largest first."""
    repeats: int = 1
    """How many times in a step the same gradients are reduced."""
    repeat_calls: float = 0.0
    repeat_ms: float = 0.0
    """Time of the redundant calls per step, transfer only."""
    groups: list[str] = field(default_factory=list)
    contention: Contention | None = None
    """None where no rank's threads were followed."""
    health: list[HealthRow] = field(default_factory=list)
    memory: list[MemoryRow] = field(default_factory=list)

    @property
    def whole_step_ms(self) -> float:
        """What times per step are parts of: the mean step, else the usual one, else 0."""
        return self.mean_step_ms or self.step_ms or 0.0

    @property
    def unrecorded_step_ms(self) -> float | None:
        """Median of the steps around the windows in which no rank recorded; None for fewer than five of them."""
        steps = self.run_steps
        if steps is None or steps.unprofiled_steps < FEWEST_STEPS:
            return None
        return steps.around_ms or steps.median_ms

    @property
    def pressure_pct(self) -> float:
        """How much of the time threads waited for a CPU on the host where that was most; 0 where it is not known."""
        return max((row.pressure_cpu_pct or 0.0 for row in self.health), default=0.0)

    @property
    def recording_pct(self) -> float:
        """``recording_ms`` of a recorded step."""
        return 100.0 * self.recording_ms / self.whole_step_ms if self.whole_step_ms else 0.0

    @property
    def own_host_ms(self) -> float:
        """What of ``host_ms`` remains in an unrecorded step.

        Recording slows hosts; so what it adds to a step is time in which devices do not work: of waiting for peers, for
        input and for the host alike.
        """
        waiting = self.host_ms + self.waiting_ms + self.input_ms
        return self.host_ms * max(1.0 - self.recording_ms / waiting, 0.0) if waiting > 0 else 0.0

    @property
    def own_host_pct(self) -> float:
        """The same of an unrecorded step."""
        unrecorded = self.whole_step_ms - self.recording_ms
        return 100.0 * self.own_host_ms / unrecorded if unrecorded > 0 else 0.0

    @property
    def own_host_gain_ms(self) -> float | None:
        """``host_gain_ms`` of an unrecorded step, and no more than a device idles for its host."""
        if self.host_gain_ms is None:
            return None
        most = self.host_gain_ms if self.most_host_ms is None else min(self.host_gain_ms, self.most_host_ms)
        return max(most - self.recording_ms, 0.0)

    @property
    def what_if(self) -> dict[str, float]:
        """What was replayed, by the names of ``ClusterReport.what_if``; a loss is no gain."""
        asked = {
            "ideal_network": self.network_gain_ms,
            "hidden_transfers": self.overlap_gain_ms,
            "even_compute": self.balance_gain_ms,
            "no_host_overhead": self.own_host_gain_ms,
        }
        return {name: max(gain, 0.0) for name, gain in asked.items() if gain is not None}
