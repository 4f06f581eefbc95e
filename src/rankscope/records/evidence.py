"""What the analysis passes to the rules: numbers, no traces. Milliseconds and per cent unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.records.changes import Changes
from rankscope.records.compared_work import OperatorExcess, StageBalance, StageWork
from rankscope.records.from_script import RegionExcess
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
    "SpareCpus",
    "StageBalance",
    "StageWork",
    "Suspect",
]


FEWEST_STEPS = 5
"""Number of unrecorded steps from which on their median is taken as the job's step time."""


@dataclass(kw_only=True)
class Suspect:
    """A candidate rank, and what the job would gain without its concentrated extra time (by replay)."""

    rank: int
    cost_ms: float
    """Per step, over all recorded steps."""
    error_ms: float
    gains_ms: list[float]
    """Per recorded step."""
    measured: bool = False
    """Whether the cost is that of the rank's whole work, measured against its peers'. ``error_ms`` is then its 95 %
    interval, and the cost decides alone."""
    model_error: float = 0.0
    """Known error of the replay for its cause and mesh, as a share of the cost; part of ``error_ms``."""
    p_value: float | None = None
    """P value of a sign-flip test over steps; None if no step gains."""
    excess_ms: float = 0.0
    """The rank's own work beyond its peers' in the segments in which it is late, per step."""
    explained: dict[str, float] = field(default_factory=dict)
    """Cause -> ms per step of that extra time."""
    uniform: float = 1.0
    """Uniform slowness of the host, as a factor; not part of the cost."""
    beside: list[int] = field(default_factory=list)
    """Other candidate ranks that are late at the same place and so hide each other's cost. The cost is then that of
    this rank once they are equalised; if empty, that of this rank alone."""
    together_ms: float = 0.0
    """What the step would gain with this rank and those in ``beside`` at the level of their peers; 0 if there are
    none."""
    caused_wait_ms: float = 0.0
    """Waiting of other ranks for this rank, per step. It is not a cost."""
    held_ms: float = 0.0
    """Per step, how long the group that waits most for this rank waits: mean over its other ranks."""
    lost: list[int] = field(default_factory=list)
    """Ranks without a trace that share another group with it."""
    lost_group: str = ""
    """Name and ranks of that group."""
    operators: list[OperatorExcess] = field(default_factory=list)
    """Operators that it runs more often, or for longer, than a peer, most time first. Only of ranks with a cost."""
    lines: dict[str, dict[str, float]] = field(default_factory=dict)
    """Cause -> the user's functions in which that host time is spent -> ms per step. Empty without stacks."""
    regions: dict[str, RegionExcess] = field(default_factory=dict)
    """Cause -> the region of the script that holds most of it. Empty without regions."""


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
    """Scheduler counts of one rank, one value per recorded step; see :class:`records.rank.ThreadTimes`."""

    rank: int
    host: str
    held_ms: list[float]
    """Time in which its threads that drive the training were runnable but others held the CPUs. Contention that the
    script's own other threads cause on this rank, beyond that on its peers, is excluded: it is the rank's own doing."""
    cpu_ms: list[float]
    """CPU time of these threads."""
    own_ms: list[float] = field(default_factory=list)
    """Host time of the step without waiting for peers and without ``held_ms``: the rank's own time. Empty if unknown
    (with a device, which decides when the host waits)."""
    least_ms: list[float] = field(default_factory=list)
    """Lower bound of ``own_ms``: all time without an operator during a call counts as waiting."""
    named_ms: dict[str, list[float]] = field(default_factory=dict)
    """Cause -> host time that it accounts for in the trace, including time on a run queue."""
    script_ms: list[float] = field(default_factory=list)
    """CPU time of the script's own other threads."""


@dataclass(kw_only=True)
class Contention:
    """Delay of the ranks by other processes on their machines. The lists of all ranks have the same length."""

    ranks: list[RankCpu]
    gains_ms: list[float]
    """Gain of each step on a machine without contention: by replay, else the delay of the least delayed rank."""
    others_ms: dict[str, float] = field(default_factory=dict)
    """Host -> CPU time per step of processes outside the job, on the CPUs that the job may use. Only where known."""
    beside_ms: dict[str, float] = field(default_factory=dict)
    """Host -> CPU time per step of processes outside the job on all its CPUs. They may share cores with the job's."""
    cpus: dict[str, float] = field(default_factory=dict)
    """Host -> number of CPUs that the job may use there."""

    @property
    def cost_ms(self) -> float:
        """Mean gain per step."""
        return sum(self.gains_ms) / len(self.gains_ms) if self.gains_ms else 0.0

    def of(self, rank: int) -> RankCpu | None:
        """Return the counts of one rank; None if unknown."""
        return next((r for r in self.ranks if r.rank == rank), None)


@dataclass(kw_only=True)
class SpareCpus:
    """CPUs that the job may use on the host where the least of them is idle while it is recorded."""

    host: str
    cpus: float
    idle: float
    """Idle share of them, 0 to 1."""


@dataclass(kw_only=True)
class GroupDelay:
    """A process group, or pairs of ranks, whose transfers take longer than comparable ones, and their cost per step."""

    ranks: list[int]
    kinds: list[str]
    """Of its calls; ``message`` between pairs."""
    ratio: float
    cost_ms: float
    error_ms: float
    pairs: list[list[int]] = field(default_factory=list)
    """Of the ranks, between which messages are slow; empty for a process group."""


@dataclass(kw_only=True)
class Place:
    """Ranks with a usable trace that share a host or a part of it, a process group, or their place on every host or in
    a dimension of the mesh."""

    kind: Literal["host", "numa", "nvlink", "group", "adapter", "rail", "mesh"]
    """``adapter``: nearest to network adapters of one name, on all hosts; ``rail``: with one local rank; ``mesh``: with
    one position in the groups of a dimension of the mesh."""
    name: str
    """Name of the host, the group or the adapter; the NUMA node and its host; the local rank; ``1 of mesh_pp``."""
    ranks: list[int]


@dataclass(kw_only=True)
class JobEnded:
    """How a job without a usable trace ended, as far as its manifest shows."""

    exit_code: int | None
    steps: int
    """The largest number of steps that a rank counted."""
    traces: bool
    """Whether there are trace files nevertheless."""
    notes: list[str] = field(default_factory=list)
    """Why nothing was recorded, in words."""


@dataclass(kw_only=True)
class Evidence:
    """Everything that a verdict is based on."""

    ranks: list[int]
    missing: list[int] = field(default_factory=list)
    lost: dict[str, list[int]] = field(default_factory=dict)
    """Reason why ranks left no usable trace, in words -> these ranks."""
    ended: JobEnded | None = None
    """None if there is no manifest."""
    incomplete: dict[int, str] = field(default_factory=dict)
    """Ranks whose trace lacks device records -> how many, in words."""
    unsound: list[int] = field(default_factory=list)
    """Those of them that lost too many to be compared with others."""
    steps: int = 0
    step_ms: float | None = None
    """The job's mean step, over the steps that all ranks recorded: costs and shares refer to it."""
    mean_step_ms: float | None = None
    """Mean step of the slowest rank over all its recorded steps, some of which may not be in ``step_ms``."""
    device: bool = True
    visible_pct: float | None = None
    """How much slower than the others a device must be to be detected, in 19 of 20 windows like this one; None:
    unknown."""
    screened: bool = False
    """No cost was computed for any rank, because none makes others wait long enough to matter."""
    world_size: int | None = None
    """Number of ranks of the job, including those that were not recorded; None if unknown."""
    compute_ms: dict[int, float] = field(default_factory=dict)
    """Rank -> compute per step."""
    uses: list[str] = field(default_factory=list)
    """Features that the trace shows to be in use: ``ddp``, ``fsdp1``, ``fsdp2``, ``compile``, ``cuda_graphs``,
    ``fused_optimizer``, ``foreach_optimizer``."""
    shapes: bool = False
    """Whether shapes of operators were recorded; likewise the next, Python stacks, which make a host several times
    slower."""
    stacks: bool = False
    often: str = ""
    """The operator with device work that is called most often in a step; empty if unknown."""
    often_calls: float = 0.0
    """Its calls per step."""
    host_lines: dict[str, float] = field(default_factory=dict)
    """Python functions of the rank with most host idle time: function -> ms per step of its self time. Needs stacks."""
    run_steps: RunSteps | None = None
    """All steps of the run, recorded or not; None without a step log."""
    calls: int = 0
    matched_pct: float | None = None
    unmatched: dict[str, int] = field(default_factory=dict)
    """Reason why calls could not be matched, in words -> number of calls, the most frequent first."""
    clock_spread_us: float = 0.0
    """Typical residual of the clock alignment."""
    refused: str | None = None
    """Why no replay was made or trusted; None if it was."""
    pipeline: bool = False
    """The ranks are stages that communicate point to point and have no comparable ranks, so that waiting follows from
    the schedule."""
    micro_batches: int | None = None
    """Of a pipeline's step: messages from each stage to each neighbour; None if unknown."""
    staged: bool = False
    """Some ranks are pipeline stages, and have comparable ranks."""
    stages: StageBalance | None = None
    """None without pipeline stages."""
    places: list[Place] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    slow_groups: list[GroupDelay] = field(default_factory=list)
    """In order of cost, the largest first."""
    compute_pct: float = 0.0
    exposed_comm_pct: float = 0.0
    overlap_pct: float | None = None
    """Share of communication that is overlapped by compute."""
    idle_pct: float = 0.0
    waiting_ms: float = 0.0
    transfer_ms: float = 0.0
    """Exposed transfer per step, mean over ranks."""
    input_ms: float = 0.0
    host_ms: float = 0.0
    """Host idle time, including what recording adds."""
    most_host_ms: float | None = None
    """The same of the rank with most of it: an upper bound of what a host without overhead gains."""
    recording_ms: float = 0.0
    """What recording adds to a step: recorded steps compared with those before the window; 0 if it was not measured."""
    before_ms: float | None = None
    """Mean of the steps just before the windows, of the host; None if there are none."""
    copy_ms: float = 0.0
    allocator_ms: float = 0.0
    """Host time in calls that allocate or free device memory (cudaMalloc, cudaFree), per step, of the median rank."""
    pageable_ms: float = 0.0
    """What copies to the device that did not come from pageable memory would gain per step (replay)."""
    again_ms: float = 0.0
    """What it would gain per step if the backward ran no operators of the forward again (replay)."""
    kernel_us: float | None = None
    """Median duration of a compute kernel."""
    launches: float = 0.0
    """Kernels per step and rank."""
    network_gain_ms: float | None = None
    """What an infinitely fast network would gain per step (replay)."""
    host_gain_ms: float | None = None
    """What a host without overhead would gain per step (replay)."""
    overlap_gain_ms: float | None = None
    """What overlapping all transfers with other work would gain per step (replay)."""
    balance_gain_ms: float | None = None
    """What equal device work on all ranks would gain per step (replay)."""
    work_gains: dict[str, float] = field(default_factory=dict)
    """Kind of kernels -> what the step would gain if they took no time (replay)."""
    changes: Changes = field(default_factory=Changes)
    efficiency: Efficiency | None = None
    """None without a device or without steps."""
    modules: dict[str, float] = field(default_factory=dict)
    """FSDP module or DDP bucket -> exposed communication per step, waiting included, largest first."""
    regather_ms: float = 0.0
    """Transfer per step of all-gathers of parameters that FSDP2 has gathered in the same step already."""
    regather_bytes: int = 0
    """Size of these parameters, whole, on each rank."""
    repeats: int = 1
    """How many times per step the same gradients are reduced."""
    repeat_calls: float = 0.0
    repeat_ms: float = 0.0
    """Transfer time of the redundant calls per step."""
    repeat_work_ms: float = 0.0
    """What the wrapper itself does for them per step, with gradients and buckets: copies and divisions."""
    hosts: int = 0
    """Number of hosts of the recorded ranks; 0 if unknown."""
    optimizer_ms: float = 0.0
    """Host time in the optimizer's step, per step, mean over the ranks."""
    groups: list[str] = field(default_factory=list)
    contention: Contention | None = None
    """None if scheduler counts were recorded for no rank."""
    spare_cpus: SpareCpus | None = None
    """None if no host was sampled."""
    health: list[HealthRow] = field(default_factory=list)
    memory: list[MemoryRow] = field(default_factory=list)

    @property
    def whole_step_ms(self) -> float:
        """The step time that times per step are parts of: the mean step, else the usual one, else 0."""
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
        """Share of time in which threads waited for a CPU, on the host with the largest; 0 if unknown."""
        return max((row.pressure_cpu_pct or 0.0 for row in self.health), default=0.0)

    @property
    def recording_pct(self) -> float:
        """``recording_ms`` as a share of a recorded step."""
        return 100.0 * self.recording_ms / self.whole_step_ms if self.whole_step_ms else 0.0

    @property
    def own_step_ms(self) -> float:
        """A step without what recording adds, and no longer than unrecorded steps.

        ``recording_ms`` compares usual steps with those just before a window. The first recorded step takes longer than
        the others, and a job that still warms up becomes faster: a mean recorded step less ``recording_ms`` can then
        be longer than any step that was not recorded.
        """
        own = self.whole_step_ms - self.recording_ms
        known = [ms for ms in (self.before_ms, self.unrecorded_step_ms) if ms is not None]
        return min([own, *known]) if self.recording_ms else own

    @property
    def added_ms(self) -> float:
        """What a recorded step takes longer than a step without recording; 0 if that was not measured."""
        return self.whole_step_ms - self.own_step_ms

    @property
    def own_host_ms(self) -> float:
        """Host idle time that remains in an unrecorded step.

        Recording slows hosts. The time that it adds to a step is therefore time in which devices are idle, divided
        among waiting for peers, for input and for the host in proportion.
        """
        waiting = self.host_ms + self.waiting_ms + self.input_ms
        return self.host_ms * max(1.0 - self.added_ms / waiting, 0.0) if waiting > 0 else 0.0

    @property
    def own_host_pct(self) -> float:
        """The same as a share of an unrecorded step."""
        return 100.0 * self.own_host_ms / self.own_step_ms if self.own_step_ms > 0 else 0.0

    @property
    def own_host_gain_ms(self) -> float | None:
        """``host_gain_ms`` of an unrecorded step, limited to its host idle time; None with Python's stacks, which make
        hosts several times slower."""
        if self.host_gain_ms is None or self.stacks:
            return None
        most = self.host_gain_ms if self.most_host_ms is None else min(self.host_gain_ms, self.most_host_ms)
        return max(most - self.added_ms, 0.0)

    @property
    def what_if(self) -> dict[str, float]:
        """The replayed gains, by the names of ``ClusterReport.what_if``; negative gains count as 0."""
        asked = {
            "ideal_network": self.network_gain_ms,
            "hidden_transfers": self.overlap_gain_ms,
            "even_compute": self.balance_gain_ms,
            "no_host_overhead": self.own_host_gain_ms,
        }
        return {name: max(gain, 0.0) for name, gain in asked.items() if gain is not None}
