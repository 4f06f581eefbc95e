"""Rows of the report's tables, one class a table."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.limits import Attempt, Count, Rank, Step, WindowNumber
from rankscope.records.rank import RankStatus

__all__ = [
    "CriticalPath",
    "Efficiency",
    "GroupRow",
    "HealthRow",
    "KernelRow",
    "LaunchQueue",
    "MemoryFrame",
    "MemoryRow",
    "ModuleRow",
    "PathPart",
    "PathPiece",
    "RankIdle",
    "RankSummary",
    "StepRow",
    "WorkGroup",
]


@dataclass(kw_only=True)
class RankSummary:
    """One rank over its recorded windows. Percentages refer to the recorded window.

    ``compute_pct + fused_pct + exposed_comm_pct + memcpy_pct + idle_pct == 100`` up to rounding. ``comm_pct`` is all
    communication time; ``overlap_pct`` is the share *of communication* that is overlapped by compute; ``memcpy_pct`` is
    copies and memsets overlapped neither by compute nor by communication. All are None for a rank without a usable
    trace.
    """

    rank: Rank
    host: str | None = None
    device: str | None = None
    status: RankStatus = "ok"
    reason: str | None = None
    steps: Step = 0
    step_ms: dict[str, float | None] = field(default_factory=lambda: {"median": None, "p95": None})
    compute_pct: float | None = None
    comm_pct: float | None = None
    fused_pct: float | None = None
    """Kernels that compute and communicate at once; None for a rank that ran none."""
    exposed_comm_pct: float | None = None
    overlap_pct: float | None = None
    memcpy_pct: float | None = None
    idle_pct: float | None = None
    wait_ms_per_step: float | None = None
    """Time that this rank's collectives waited for the last arrival, summed per step. Waiting is not cost."""
    caused_wait_ms_per_step: float | None = None
    """Waiting of the other ranks while this rank was the last to arrive."""
    files: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class RankIdle:
    """Components of the time in which a rank's device (or, without one, its main thread) does not compute.

    In ms per step. ``waiting``: exposed time before the last arrival at a collective; ``transfer``: exposed time after
    it; ``input``: device idle while the host is in the data loader; ``host``: device idle for any other host reason;
    ``copy``: exposed copies.
    """

    rank: Rank
    waiting_ms: float
    transfer_ms: float
    input_ms: float
    host_ms: float
    copy_ms: float


@dataclass(kw_only=True)
class StepRow:
    """One step of one rank. ``lateness_ms`` is the rank's mean arrival relative to the median of the others.

    ``duration_ms`` is the host's step. Device times are those of the work that it launched; ``idle_ms`` counts from the
    end of the previous step's last work to the end of this one's. ``input_ms`` is the part of it in which the host is
    in the data loader, ``waiting_ms`` the part of ``exposed_comm_ms`` before the last rank has arrived.
    """

    attempt: Attempt
    window: WindowNumber
    step: Step
    rank: Rank
    duration_ms: float
    compute_ms: float
    comm_ms: float
    exposed_comm_ms: float
    idle_ms: float
    input_ms: float | None = None
    waiting_ms: float | None = None
    wait_ms: float | None = None
    lateness_ms: float | None = None
    cost_ms: float | None = None
    """By how much the job's step would be shorter without the rank's extra time (replay): 0 for a rank that makes no
    other wait long enough to matter. None if the window was not replayed, or if a rank lacks the step."""


@dataclass(kw_only=True)
class GroupRow:
    """One kind of collective in one process group, per step and averaged over the group's ranks."""

    group: str
    """The group's description or name, for display; ``ranks`` identifies the group."""
    ranks: list[Rank]
    collective: str
    dtype: str | None
    calls_per_step: float | None
    """None if the trace has no steps, as are all values per step."""
    megabytes_per_call: float | None
    wait_ms_per_step: float | None
    transfer_ms_per_step: float | None
    exposed_ms_per_step: float | None
    bus_gb_s: float | None
    """Bus bandwidth of the transfer alone, in 10^9 bytes per second (definition of the NCCL tests)."""


@dataclass(kw_only=True)
class ModuleRow:
    """One kind of collective of one FSDP module or DDP bucket, per step and averaged over the ranks of its group.

    Measured as in :class:`GroupRow`: if every call of a group belongs to a module, these rows add up to that one.
    """

    module: str
    """As named by FSDP2's annotations: ``layers.3``, or ``(root)``. ``DDP bucket 2``: the second all-reduce of each
    backward."""
    group: str
    ranks: list[Rank]
    """Ranks of the group, which identify it."""
    collective: str
    calls_per_step: float
    megabytes_per_call: float | None
    wait_ms_per_step: float
    transfer_ms_per_step: float
    exposed_ms_per_step: float
    bus_gb_s: float | None


@dataclass(kw_only=True)
class LaunchQueue:
    """How far one rank's host runs ahead of its device, over its recorded windows. Only for ranks with a device.

    Outstanding work has been launched and has not begun, on all streams together, weighted by time; copies and
    communication count.
    """

    rank: Rank
    median_outstanding: float
    max_outstanding: int
    median_delay_us: float
    """From the start of a launch to the start of its work."""
    starved_pct: float
    """Share of the window in which nothing is outstanding and nothing runs, so that the device waits for its host."""


@dataclass(kw_only=True)
class KernelRow:
    """One kernel name (without a device, one operator name), averaged over the ranks that ran it."""

    name: str
    category: str
    ms_per_step: float | None
    """None if the trace has no steps, as the next."""
    launches_per_step: float | None
    share_pct: float
    """Share of all kernel time of these ranks."""
    max_rank: Rank | None = None
    max_over_median: float | None = None
    """Time on the rank with most of it, divided by the median over ranks; 1.0 if equal."""
    operator: str | None = None
    """The operator that launches most of a kernel's time; None without a device, or if it is not known."""
    shapes: str | None = None
    """Its input dims where it takes most of that time; None if none were recorded."""
    tflops: float | None = None
    """Rate of the kernel, 10^12 operations a second; None if its work cannot be counted."""
    gb_s: float | None = None
    """10^9 bytes a second that it moves at least: each input and the output once; None if that is unknown."""
    module: str | None = None
    """The module whose calls launch most of its time, ``GPT/Block/Linear``; None without stacks, or outside of all."""


@dataclass(kw_only=True)
class HealthRow:
    """One rank's accelerator and host over its recorded windows; None: not reported.

    Clocks, power and utilisation are medians of the samples, the temperature is the highest.
    """

    rank: Rank
    host: str | None = None
    device: str | None = None
    gc_ms_per_step: float | None = None
    """Time of Python's garbage collector in the recorded steps."""
    samples: Count = 0
    """Number of samples of the accelerator."""
    sm_mhz: float | None = None
    sm_max_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    utilisation_pct: float | None = None
    throttle: dict[str, float] = field(default_factory=dict)
    """Reason -> share of the samples with it, 0 to 100, most frequent first."""
    ecc_corrected: int | None = None
    """Errors since the driver was loaded, at the last sample; likewise the next."""
    ecc_uncorrected: int | None = None
    pcie_generation: int | None = None
    """The highest seen, because an idle link reduces its speed by design."""
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    """From the first to the last sample of each window, summed."""
    other_processes: int | None = None
    """The largest number of processes seen with a compute context on the device, without the ranks of the job that use
    it."""
    cpus: float | None = None
    load_1m: float | None = None
    """Highest seen."""
    cpu_throttled_ms: float | None = None
    """How long the cgroup's CPU quota stopped its tasks, summed over tasks, from the first to the last sample of each
    window."""
    cpu_throttled_pct: float | None = None
    """Share of scheduling periods with such a stop, among all between these samples."""
    memory_available_bytes: int | None = None
    """Lowest seen."""
    pressure_cpu_pct: float | None = None
    """Highest seen; likewise the next two."""
    pressure_memory_pct: float | None = None
    pressure_io_pct: float | None = None
    others_cpu_pct: float | None = None
    """Share of the CPUs that the job may use which processes outside the job kept busy, as a mean over the windows."""


@dataclass(kw_only=True)
class MemoryFrame:
    """Allocations by one Python line that are alive at the peak."""

    frame: str
    """``file.py:12 function``."""
    bytes: int
    count: int
    what: str = ""
    """``optimizer states`` or ``logits and loss``, by the functions of PyTorch that the line called; else empty."""


@dataclass(kw_only=True)
class MemoryRow:
    """Device memory of one rank in one window (or at an out-of-memory error), of the device with the highest peak.

    From the snapshot of PyTorch's memory history, or else from the allocator's totals in the trace.
    """

    attempt: Attempt
    window: WindowNumber | None
    """None: the snapshot was taken at an out-of-memory error."""
    rank: Rank
    file: str | None
    """The snapshot, for https://pytorch.org/memory_viz; None: the values are from the trace."""
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    end_allocated_bytes: int
    end_reserved_bytes: int
    segment_allocs: int | None
    """Number of times that the allocator took memory from the device (cudaMalloc, or cuMemMap with expandable
    segments). Only known with a snapshot, as the next."""
    segment_frees: int | None
    allocs_per_step: list[int] = field(default_factory=list)
    """Number of such allocations in each step; empty if the steps are unknown."""
    frees_per_step: list[int] = field(default_factory=list)
    peak_per_step: list[int] = field(default_factory=list)
    """Largest number of bytes allocated in each step; empty if the steps are unknown."""
    complete: bool = True
    """False if the history was too short to cover the window: the peak may have been higher."""
    device_bytes: int | None = None
    """Memory of the device; None if no trace of the rank contains it."""
    requested_bytes: int | None = None
    """Size of the allocation that failed; None in a window."""
    top: list[MemoryFrame] = field(default_factory=list)
    """In order of bytes, the largest first; at most ten."""

    @property
    def fragmentation_bytes(self) -> int:
        """Bytes reserved and not allocated at the end."""
        return self.end_reserved_bytes - self.end_allocated_bytes

    @property
    def free_bytes(self) -> int | None:
        """Bytes of the device that are not reserved at the peak; None if its size is unknown."""
        return None if self.device_bytes is None else self.device_bytes - self.peak_reserved_bytes

    @property
    def growth_bytes_per_step(self) -> float | None:
        """From the peak of the first step to that of the last; None for fewer than two steps."""
        steps = len(self.peak_per_step) - 1
        return (self.peak_per_step[-1] - self.peak_per_step[0]) / steps if steps > 0 else None


@dataclass(kw_only=True)
class WorkGroup:
    """Kernels of one kind of work, per step and averaged over the ranks."""

    name: str
    ms_per_step: float
    kernels_per_step: float
    tflops: float | None = None
    """10^12 operations per second while they run; None if less than half of their time could be counted."""
    gb_s: float | None = None
    """Lower bound, in 10^9 bytes per second: each input is read once and one output written. None as above."""
    peak_pct: float | None = None
    """The larger of the two shares of the device's peaks; None for an unknown device."""
    bound: str = ""
    """``math``, ``memory``, ``launch`` (kernels shorter than 10 us on average), or empty if unknown."""


@dataclass(kw_only=True)
class Efficiency:
    """How well the devices are used. Only matrix products whose shapes were recorded are counted, so operations are a
    lower bound."""

    device: str | None
    peak_tflops: float | None
    """Peak of the device: dense, bf16."""
    peak_gb_s: float | None
    shapes: bool
    """Whether shapes were recorded (``record_shapes``); without them no operations are known."""
    tflop_per_step: float | None
    """Operations counted per rank and step, in 10^12."""
    tflops: float | None
    """These per second of the whole step, in 10^12."""
    peak_pct: float | None
    """``tflops`` as a share of the peak, also called hardware FLOP utilisation."""
    counted_pct: float
    """Share of compute time whose operations were counted."""
    plain_ms: float
    """Time per step of matrix products in kernels whose names show that they use no tensor cores."""
    small_kernels: float
    """Number of kernels per step that are shorter than 10 us."""
    small_ms: float
    compiled: bool
    """Whether kernels of torch.compile were seen; likewise the next, CUDA graphs."""
    graphs: bool
    groups: list[WorkGroup] = field(default_factory=list)
    """In order of time, the largest first."""


@dataclass(kw_only=True)
class PathPiece:
    """A stretch of the critical path of one step."""

    rank: Rank | None
    """None if it belongs to several ranks."""
    kind: str
    """``compute``, ``host``, ``transfer``, or ``launch``: latencies and gaps between pieces of work."""
    name: str
    """Name of the kernel with most time in it, of the host activity if known, or of the collective; else empty."""
    start_ms: float
    """From the begin of the step."""
    duration_ms: float


@dataclass(kw_only=True)
class PathPart:
    """How long the critical path stays on one rank with one kind of work, mean over the recorded steps."""

    rank: Rank | None
    kind: str
    ms_per_step: float


@dataclass(kw_only=True)
class CriticalPath:
    """The chain of work that decides how long a step takes, by replay. Shortening other work does not shorten the
    step."""

    attempt: Attempt
    window: WindowNumber
    step: Step | None
    """The median step of the window, whose pieces are listed."""
    step_ms: float
    parts: list[PathPart] = field(default_factory=list)
    """Over all steps, most time first."""
    pieces: list[PathPiece] = field(default_factory=list)
    """In order of time, at most 400."""
