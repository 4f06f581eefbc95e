"""Records that cross a process or file boundary. Standard library only.

Every record is a dataclass that survives ``from_json(to_json(x)) == x``. Unknown keys are ignored when
reading, so that an older reader understands a newer file of the same major schema version.

Times ending in ``_ms`` are milliseconds, ``_us`` microseconds, ``_ns`` integer nanoseconds of CLOCK_REALTIME
unless a docstring says otherwise. Percentages are 0 to 100.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

__all__ = [
    "BY_LIBKINETO",
    "DETAILS",
    "PULSE_CAPACITY",
    "PULSE_ENTRY",
    "PULSE_HEADER",
    "SCHEMA_VERSION",
    "AgentSpec",
    "BudgetSpec",
    "CaptureRequest",
    "CaptureSpec",
    "ClockReport",
    "ClockSample",
    "ClusterReport",
    "CollectivesReport",
    "Finding",
    "GroupRow",
    "HealthRow",
    "HealthSample",
    "HostSample",
    "KernelRow",
    "LaunchQueue",
    "MemoryFrame",
    "MemoryRow",
    "ModuleRow",
    "PulseBucket",
    "PulseReport",
    "PulseRow",
    "PulseWindow",
    "RankIdle",
    "RankRecord",
    "RankSummary",
    "ReportError",
    "RunInfo",
    "RunManifest",
    "ScheduleSpec",
    "SourceFile",
    "StepRow",
    "StepTimes",
    "Verdict",
    "Window",
    "WindowRanks",
    "from_json",
    "to_json",
    "to_plain",
]

SCHEMA_VERSION = "1.0"

RankStatus = Literal["ok", "partial", "missing", "corrupt", "skipped"]
"""``skipped``: not among the ranks that were to record (``capture.ranks``)."""
Confidence = Literal["high", "medium", "low"]
VerdictKind = Literal["straggler", "balanced", "host_bound", "comm_bound", "pipeline", "insufficient_data"]


# ---------------------------------------------------------------- launcher -> agent


@dataclass(kw_only=True)
class ScheduleSpec:
    """Which steps are recorded. Counted in optimizer steps from 0, the same on every rank.

    One cycle is ``wait`` idle, ``warmup`` discarded and ``active`` recorded steps; cycles follow
    ``skip_first`` steps and come ``repeat`` times. With ``every`` the cycles begin that many steps apart and never end.
    """

    skip_first: int
    wait: int
    warmup: int
    active: int
    repeat: int
    every: int = 0

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

    number: int
    warm: int
    first: int
    last: int
    origin: str = "plan"
    """``plan``, ``slow_step``, or the name of the request it answers."""
    backend: str = "inline"
    """What records it; see :class:`CaptureSpec`."""
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
    steps: int
    warmup: int
    detail: str = ""


DETAILS = ("shapes", "stacks", "memory")
"""What a request may ask to be recorded besides the configured: input shapes; those and Python stacks; allocations."""


BY_LIBKINETO = ("kineto", "kineto_alone")
"""Backends that libkineto records for, asked for by name."""


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
    """``inline`` (torch.profiler), ``kineto`` (libkineto's own threads), ``kineto_alone`` (and never torch.profiler),
    ``cuda_profiler`` (for nsys) or ``auto``."""
    memory_snapshot: bool = False
    """CUDA memory history of each window, for PyTorch's memory viewer."""
    ranks: str = "all"
    """``all``, ``first-of-node``, or ranks separated by commas."""


@dataclass(kw_only=True)
class BudgetSpec:
    """Limits of what windows beyond the planned ones may cost."""

    windows: int
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
    agreement_lead: int
    """How many steps before a window opens its start is announced at the latest."""
    exit_grace_s: float
    """Longest time the agent may hold up the end of a process whose window is still open."""
    budget: BudgetSpec
    kineto_socket: str | None = None
    """Folder of the socket on which the node helper answers libkineto; None where that is not possible."""
    no_kineto: str | None = None
    """Why it is not."""


# ---------------------------------------------------------------- agent -> node

PULSE_HEADER = struct.Struct("<Q")
"""Steps noted so far."""
PULSE_ENTRY = struct.Struct("<IIII")
"""Of one step, in microseconds: duration, data loader, garbage collection; then 1 inside a window, else 0."""
PULSE_CAPACITY = 1 << 16
"""Entries of a rank's ring; entry ``n`` lies at ``n % PULSE_CAPACITY``."""


@dataclass(kw_only=True)
class ClockSample:
    """CLOCK_REALTIME and CLOCK_MONOTONIC of one host, read back to back."""

    realtime_ns: int
    monotonic_ns: int


@dataclass(kw_only=True)
class HealthSample:
    """State of one accelerator at one moment, as its driver tells it; None is what it does not tell.

    Sources: NVML (nvidia-ml-py) or AMD SMI. ``ecc_*`` count since the driver was loaded, ``pcie_replays`` too.
    """

    time_ns: int
    device: str
    """Its UUID, as NVML writes it: ``GPU-...``; on ROCm its PCI address."""
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    utilisation_pct: int | None = None
    throttle: list[str] = field(default_factory=list)
    """Why the clock is below what it could be, in words; idleness and clocks set by an administrator included."""
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None


@dataclass(kw_only=True)
class HostSample:
    """State of one host at one moment, as its kernel tells it.

    ``quota_periods`` and ``throttled_*`` count since the cgroup was made: scheduling periods under a CPU quota, those
    in which it ran out, and the time its tasks were held for that. ``pressure_*`` is PSI's ``some avg10``: the share of
    the last 10 s in which at least one task waited for that resource.
    """

    time_ns: int
    load_1m: float | None = None
    cpus: float | None = None
    """CPUs this job may use: affinity, or the cgroup's quota where that is less."""
    quota_periods: int | None = None
    throttled_periods: int | None = None
    throttled_ms: float | None = None
    memory_available_bytes: int | None = None
    pressure_cpu_pct: float | None = None
    pressure_memory_pct: float | None = None
    pressure_io_pct: float | None = None


@dataclass(kw_only=True)
class StepTimes:
    """Host step times around a window, the product's own cost: before, inside, after (milliseconds)."""

    before_ms: list[float] = field(default_factory=list)
    inside_ms: list[float] = field(default_factory=list)
    after_ms: list[float] = field(default_factory=list)
    open_ms: float | None = None
    """What opening the window cost the training thread."""
    close_ms: float | None = None
    """What stopping and exporting cost the training thread."""


@dataclass(kw_only=True)
class RankRecord:
    """What one rank says of one window, or, with ``window`` None, of its whole life."""

    rank: int
    local_rank: int
    world_size: int
    host: str
    pid: int
    attempt: int
    window: int | None = None
    status: RankStatus = "ok"
    reason: str | None = None
    """Why the status is not ok, in words for the report."""
    device: str | None = None
    backend: str | None = None
    torch_version: str | None = None
    step_source: str | None = None
    """The detector that counted, for instance ``optimizer``."""
    steps_counted: int = 0
    first_step: int | None = None
    last_step: int | None = None
    """Inclusive range of the steps recorded."""
    planned_first_step: int | None = None
    planned_last_step: int | None = None
    agreed: bool | None = None
    """True when the window was opened as rank 0 had announced; None when no announcement came."""
    origin: str = "plan"
    """What the window was opened for; see :class:`Window`."""
    capture: str | None = None
    """The backend that recorded: ``inline``, ``kineto`` or ``cuda_profiler``."""
    capture_reason: str | None = None
    """Why that one."""
    gc_ms: float | None = None
    """Time Python's garbage collector held the training thread during the recorded steps."""
    clock: list[ClockSample] = field(default_factory=list)
    steps: StepTimes = field(default_factory=StepTimes)
    notes: list[str] = field(default_factory=list)
    trace: str | None = None
    """File name of the trace beside this record."""
    snapshot: str | None = None
    """File name of the CUDA memory snapshot beside this record."""
    trace_bytes: int | None = None
    sha256: str | None = None
    cuda_used: bool = False
    open_window: int | None = None
    """In the record of a life: the window that was open when the process was last heard of."""
    device_uuid: str | None = None
    """The accelerator, as its driver names it."""
    health: list[HealthSample] = field(default_factory=list)
    """Of that accelerator during the window, from the node helper; or the samples just before and after."""
    host_load: list[HostSample] = field(default_factory=list)
    """Of its host, likewise."""


# ---------------------------------------------------------------- node -> analysis


@dataclass(kw_only=True)
class WindowRanks:
    """One window of one attempt: the ranks that were due and what became of them."""

    attempt: int
    window: int
    world_size: int
    records: list[RankRecord]
    """One per rank of the world, in order of rank; missing ones have status ``missing``."""
    mismatches: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class RunManifest:
    """``run.json``: the run as a whole. Written once, by the node that hosts rank 0."""

    run_id: str
    argv: list[str]
    config: dict[str, Any]
    versions: dict[str, str]
    hosts: list[str]
    world_size: int | None
    attempts: int
    exit_code: int | None
    windows: list[WindowRanks]
    lives: list[RankRecord]
    """Per attempt and rank: steps counted and how it ended (records with ``window`` None)."""
    notes: list[str] = field(default_factory=list)
    schema_version: str = SCHEMA_VERSION


# ---------------------------------------------------------------- analysis -> report


@dataclass(kw_only=True)
class RunInfo:
    """The head of the report. For foreign traces only ``source``, ``world_size`` and ``windows`` are known."""

    source: Literal["run", "traces"]
    run_id: str | None = None
    command: list[str] = field(default_factory=list)
    world_size: int | None = None
    hosts: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    backend: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    windows: list[str] = field(default_factory=list)
    """Each analysed window in words, e.g. ``attempt 0, window 0: steps 13 to 18``."""
    exit_code: int | None = None
    recording_overhead_pct: float | None = None
    """Median step inside the window against the median before it; None when not measured."""
    residue_pct: float | None = None
    """Median step after the last window against the median before it: what recording left behind."""
    longest_stall_ms: float | None = None
    """Longest time opening or closing a window held up a training thread."""
    notes: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class RankSummary:
    """One rank over its recorded windows. Percentages refer to the recorded window, and
    ``compute_pct + exposed_comm_pct + memcpy_pct + idle_pct == 100`` up to rounding.

    ``comm_pct`` is all communication time; ``overlap_pct`` the share *of communication* hidden behind
    compute; ``memcpy_pct`` copies and memsets hidden behind neither compute nor communication.
    All are None for a rank without a usable trace.
    """

    rank: int
    host: str | None = None
    device: str | None = None
    status: RankStatus = "ok"
    reason: str | None = None
    steps: int = 0
    step_ms: dict[str, float | None] = field(default_factory=lambda: {"median": None, "p95": None})
    compute_pct: float | None = None
    comm_pct: float | None = None
    exposed_comm_pct: float | None = None
    overlap_pct: float | None = None
    memcpy_pct: float | None = None
    idle_pct: float | None = None
    wait_ms_per_step: float | None = None
    """Time this rank's collectives waited for the last arrival, summed per step. Waiting is not cost."""
    caused_wait_ms_per_step: float | None = None
    """Waiting of the other ranks while this rank was the last to arrive."""
    files: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class RankIdle:
    """Where the time of one rank goes in which its device (or, without one, its main thread) does no compute.

    ms per step. ``waiting`` exposed time before the last arrival at a collective; ``transfer`` exposed time after
    it; ``input`` device idle while the host sits in the data loader; ``host`` device idle for any other
    host reason; ``copy`` exposed copies.
    """

    rank: int
    waiting_ms: float
    transfer_ms: float
    input_ms: float
    host_ms: float
    copy_ms: float


@dataclass(kw_only=True)
class StepRow:
    """One step of one rank. ``lateness_ms`` is the rank's mean arrival after the median of the others.

    ``duration_ms`` is the host's step. Device times are of the work it launched, ``idle_ms`` from the last work of the
    step before to the last of this one. ``input_ms`` is the part of it in which the host sits in the data loader.
    """

    attempt: int
    window: int
    step: int
    rank: int
    duration_ms: float
    compute_ms: float
    comm_ms: float
    exposed_comm_ms: float
    idle_ms: float
    input_ms: float | None = None
    wait_ms: float | None = None
    lateness_ms: float | None = None


@dataclass(kw_only=True)
class GroupRow:
    """One kind of collective in one process group, per step and averaged over the group's ranks."""

    group: str
    """The group's description or name, for reading; ``ranks`` is its identity."""
    ranks: list[int]
    collective: str
    dtype: str | None
    calls_per_step: float
    megabytes_per_call: float | None
    wait_ms_per_step: float
    transfer_ms_per_step: float
    exposed_ms_per_step: float | None
    bus_gb_s: float | None
    """Bus bandwidth of the transfer alone, 10^9 bytes per second (NCCL tests' definition)."""


@dataclass(kw_only=True)
class ModuleRow:
    """One kind of collective of one FSDP module or DDP bucket, per step and averaged over the ranks of its group.

    Measured as :class:`GroupRow` is: where every call of a group belongs to a module, these rows sum to that one.
    """

    module: str
    """As FSDP2's annotations name it: ``layers.3``, or ``(root)``. ``DDP bucket 2``: the second all-reduce of each
    backward."""
    group: str
    ranks: list[int]
    """Of the group: its identity."""
    collective: str
    calls_per_step: float
    megabytes_per_call: float | None
    wait_ms_per_step: float
    transfer_ms_per_step: float
    exposed_ms_per_step: float
    bus_gb_s: float | None


@dataclass(kw_only=True)
class LaunchQueue:
    """How far one rank's host runs ahead of its device, over its recorded windows. Only ranks with a device.

    Outstanding is what was launched and has not begun, on all streams together, weighted by time; copies and
    communication count.
    """

    rank: int
    median_outstanding: float
    max_outstanding: int
    median_delay_us: float
    """From the start of a launch to the start of its work."""
    starved_pct: float
    """Of the window: nothing is outstanding and nothing runs, so that the device waits for its host."""


@dataclass(kw_only=True)
class KernelRow:
    """One kernel (or, without a device, one operator) name, averaged over the ranks that ran it."""

    name: str
    category: str
    ms_per_step: float
    launches_per_step: float
    share_pct: float
    """Of all kernel time of those ranks."""
    max_rank: int | None = None
    max_over_median: float | None = None
    """Time on the rank with most of it, over the median rank. 1.0 is even."""


@dataclass(kw_only=True)
class HealthRow:
    """One rank's accelerator and host over its recorded windows; None is what was not reported.

    Clocks, power and utilisation are medians of the samples, the temperature is the highest.
    """

    rank: int
    host: str | None = None
    device: str | None = None
    gc_ms_per_step: float | None = None
    """What Python's garbage collector took of the recorded steps."""
    samples: int = 0
    """Of the accelerator."""
    sm_mhz: float | None = None
    sm_max_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    utilisation_pct: float | None = None
    throttle: dict[str, float] = field(default_factory=dict)
    """Reason -> share of the samples that had it, 0 to 100, most frequent first."""
    ecc_corrected: int | None = None
    """Errors since the driver was loaded, at the last sample; likewise the next."""
    ecc_uncorrected: int | None = None
    pcie_generation: int | None = None
    """Best seen: an idle link is slow by design."""
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    """From the first to the last sample of each window, added up."""
    cpus: float | None = None
    load_1m: float | None = None
    """Highest seen."""
    cpu_throttled_ms: float | None = None
    """For how long the cgroup's CPU quota held its tasks, summed over them, from the first to the last sample of each
    window."""
    cpu_throttled_pct: float | None = None
    """Scheduling periods in which that happened, of those there were in the time between these samples."""
    memory_available_bytes: int | None = None
    """Lowest seen."""
    pressure_cpu_pct: float | None = None
    """Highest seen; likewise the next two."""
    pressure_memory_pct: float | None = None
    pressure_io_pct: float | None = None


@dataclass(kw_only=True)
class MemoryFrame:
    """Allocations alive at the peak that one Python line made."""

    frame: str
    """``file.py:12 function``."""
    bytes: int
    count: int


@dataclass(kw_only=True)
class MemoryRow:
    """Device memory of one rank in one window (or at an out-of-memory error), of the device with the highest peak.

    From the snapshot of PyTorch's memory history; without one, from the allocator's totals in the trace.
    """

    attempt: int
    window: int | None
    """None: the snapshot was taken at an out-of-memory error."""
    rank: int
    file: str | None
    """The snapshot, for https://pytorch.org/memory_viz; None: from the trace."""
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    end_allocated_bytes: int
    end_reserved_bytes: int
    segment_allocs: int | None
    """Times the allocator took memory from the device (cudaMalloc, or cuMemMap with expandable segments); only a
    snapshot tells, as of the next."""
    segment_frees: int | None
    allocs_per_step: list[int] = field(default_factory=list)
    """Of those, in each step; empty where the steps are not known."""
    frees_per_step: list[int] = field(default_factory=list)
    peak_per_step: list[int] = field(default_factory=list)
    """Most bytes allocated in each step; empty where the steps are not known."""
    complete: bool = True
    """False when the history was too short to hold the window: the peak may have been higher."""
    requested_bytes: int | None = None
    """What the allocation asked for that failed; None in a window."""
    top: list[MemoryFrame] = field(default_factory=list)
    """Most bytes first, at most ten."""

    @property
    def fragmentation_bytes(self) -> int:
        """Reserved and not allocated at the end."""
        return self.end_reserved_bytes - self.end_allocated_bytes

    @property
    def growth_bytes_per_step(self) -> float | None:
        """From the peak of the first step to that of the last; None for fewer than two steps."""
        steps = len(self.peak_per_step) - 1
        return (self.peak_per_step[-1] - self.peak_per_step[0]) / steps if steps > 0 else None


@dataclass(kw_only=True)
class PulseBucket:
    """Neighbouring steps of the whole run, recorded or not. None where no step was timed."""

    first: int
    last: int
    step_ms: float | None = None
    """Median over the ranks of their mean step."""
    slowest_ms: float | None = None
    """The longest single step, and whose it was."""
    slowest_rank: int | None = None
    input_ms: float | None = None
    """Mean time in the data loader of the rank that waited most for it, and which rank that was."""
    input_rank: int | None = None


@dataclass(kw_only=True)
class PulseRow:
    """One rank over the unprofiled steps of the whole run: no rank recorded, nor closed a window."""

    rank: int
    steps: int = 0
    median_ms: float | None = None
    p99_ms: float | None = None
    longest_ms: float | None = None
    longest_step: int | None = None
    input_pct: float | None = None
    gc_ms_per_step: float | None = None
    drift_pct: float | None = None
    """Median of the last quarter of the steps against that of the first."""


@dataclass(kw_only=True)
class PulseWindow:
    """Steps in which a rank recorded, warm-up included; both ends are inside."""

    first: int
    last: int


@dataclass(kw_only=True)
class PulseReport:
    """Step times of the whole last attempt."""

    attempt: int
    steps: int
    unprofiled_steps: int = 0
    """Timed ones, of the rank that has most."""
    median_ms: float | None = None
    """Of the unprofiled steps: median over the ranks of their medians; likewise the next."""
    around_ms: float | None = None
    """Of those just before and after the windows; None where they are most of the run."""
    typical: bool | None = None
    """Whether both medians agree."""
    windows: list[PulseWindow] = field(default_factory=list)
    buckets: list[PulseBucket] = field(default_factory=list)
    rows: list[PulseRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class ClockReport:
    """How the ranks' clocks were put on one axis: ``aligned = own + offset``."""

    method: str
    """``collective_ends``, ``host_clock`` (host events of one host share a clock) or ``none``."""
    offsets_us: dict[str, float] = field(default_factory=dict)
    """Rank (as text, for JSON) -> offset."""
    error_us: float | None = None
    """95 % of the residuals of collective ends are within this; for ``host_clock`` what Kineto's times may err."""


@dataclass(kw_only=True)
class CollectivesReport:
    """How many collectives the ranks recorded, and how many were recognised as the same call on all ranks."""

    count: int
    matched_pct: float | None
    method: str
    """``comms_id``, ``seq``, ``order``, joined by ``+`` when several were used, or ``none``."""
    unmatched: dict[str, int] = field(default_factory=dict)
    """Reason -> calls."""


@dataclass(kw_only=True)
class Verdict:
    """The first line of the report.

    ``cost_ms_per_step`` is what the job's step would shrink by without the cause, ``cost_error_ms`` its
    uncertainty in the same unit; both None where no cost is claimed.
    """

    kind: VerdictKind
    ranks: list[int] = field(default_factory=list)
    cause: str | None = None
    cost_ms_per_step: float | None = None
    cost_error_ms: float | None = None
    confidence: Confidence = "low"
    step_ms: float | None = None
    """The job's step time the cost refers to."""
    share_of_steps_pct: float | None = None
    """Recorded steps that lose more than 2 % of their time to the cause; None where no cost is claimed."""
    p_value: float | None = None
    sentence: str = ""
    """Verdict: one sentence for someone who reads nothing else."""
    why: list[str] = field(default_factory=list)
    """Why: the numbers that convince, most convincing first."""
    next: list[str] = field(default_factory=list)
    """Next: what to do first."""


@dataclass(kw_only=True)
class Finding:
    """Something worth knowing, with its evidence. ``id`` is stable within a report and used as an anchor."""

    id: str
    kind: str
    ranks: list[int]
    cost_ms_per_step: float | None
    confidence: Confidence
    title: str
    evidence: list[str]
    advice: list[str]


@dataclass(kw_only=True)
class SourceFile:
    """One file that was offered to the analysis and what became of it."""

    path: str
    status: Literal["used", "ignored", "unusable", "unassigned"]
    rank: int | None = None
    reason: str | None = None
    repairs: dict[str, int] = field(default_factory=dict)
    """Kind of repair or drop -> number of events."""


@dataclass(kw_only=True)
class ReportError:
    """An analysis that failed; the rest of the report stands without it."""

    where: str
    message: str


@dataclass(kw_only=True)
class ClusterReport:
    """``report.json``. Everything that measures writes it, everything that shows reads only this."""

    run: RunInfo
    ranks: list[RankSummary]
    clock: ClockReport
    collectives: CollectivesReport
    verdict: Verdict
    findings: list[Finding] = field(default_factory=list)
    what_if: dict[str, float] = field(default_factory=dict)
    """What each step would gain by replay, ms: ``ideal_network``, ``hidden_transfers``, ``even_compute``,
    ``no_host_overhead``. Empty where nothing was replayed."""
    hta: dict[str, Any] = field(default_factory=dict)
    """Analysis name -> rank (as text) -> HTA's own numbers."""
    errors: list[ReportError] = field(default_factory=list)
    idle: list[RankIdle] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    modules: list[ModuleRow] = field(default_factory=list)
    kernels: list[KernelRow] = field(default_factory=list)
    queues: list[LaunchQueue] = field(default_factory=list)
    sources: list[SourceFile] = field(default_factory=list)
    health: list[HealthRow] = field(default_factory=list)
    memory: list[MemoryRow] = field(default_factory=list)
    pulse: PulseReport | None = None
    schema_version: str = SCHEMA_VERSION


# ---------------------------------------------------------------- JSON

T = TypeVar("T")


def to_plain(record: Any) -> Any:
    """Turn a record into dicts, lists and scalars."""
    return dataclasses.asdict(record)


def to_json(record: Any, *, indent: int | None = 1) -> str:
    """Serialise a record. NaN and infinities are refused: they are not JSON, and never a measurement."""
    return json.dumps(to_plain(record), indent=indent, ensure_ascii=False, allow_nan=False)


def from_json(cls: type[T], text: str | bytes) -> T:
    """Read a record of type ``cls``.

    Raises:
        ValueError: the text is not JSON, or a required field is missing.
    """
    plain = json.loads(text)
    try:
        return typing.cast(T, _build(cls, plain))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a {cls.__name__}: {error}") from error


def _build(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        known = {f.name for f in dataclasses.fields(hint)}
        return hint(**{key: _build(hints[key], item) for key, item in value.items() if key in known})
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in arguments if a is not type(None)]
        return None if value is None else _build(inner[0], value)
    if origin is list:
        return [_build(arguments[0], item) for item in value]
    if origin is dict:
        return {key: _build(arguments[1], item) for key, item in value.items()}
    return value
