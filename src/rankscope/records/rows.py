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
    """One rank over its recorded windows. Percentages refer to the recorded window, and
    ``compute_pct + fused_pct + exposed_comm_pct + memcpy_pct + idle_pct == 100`` up to rounding.

    ``comm_pct`` is all communication time; ``overlap_pct`` the share *of communication* hidden behind
    compute; ``memcpy_pct`` copies and memsets hidden behind neither compute nor communication.
    All are None for a rank without a usable trace.
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

    rank: Rank
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
    wait_ms: float | None = None
    lateness_ms: float | None = None


@dataclass(kw_only=True)
class GroupRow:
    """One kind of collective in one process group, per step and averaged over the group's ranks."""

    group: str
    """The group's description or name, for reading; ``ranks`` is its identity."""
    ranks: list[Rank]
    collective: str
    dtype: str | None
    calls_per_step: float | None
    """None, as all numbers per step, where the trace has no steps."""
    megabytes_per_call: float | None
    wait_ms_per_step: float | None
    transfer_ms_per_step: float | None
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
    ranks: list[Rank]
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

    rank: Rank
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
    ms_per_step: float | None
    """None, as the next, where the trace has no steps."""
    launches_per_step: float | None
    share_pct: float
    """Of all kernel time of those ranks."""
    max_rank: Rank | None = None
    max_over_median: float | None = None
    """Time on the rank with most of it, over the median rank. 1.0 is even."""


@dataclass(kw_only=True)
class HealthRow:
    """One rank's accelerator and host over its recorded windows; None is what was not reported.

    Clocks, power and utilisation are medians of the samples, the temperature is the highest.
    """

    rank: Rank
    host: str | None = None
    device: str | None = None
    gc_ms_per_step: float | None = None
    """What Python's garbage collector took of the recorded steps."""
    samples: Count = 0
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
    other_processes: int | None = None
    """Most processes seen with a compute context on the device, beyond the job's ranks that use it."""
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

    attempt: Attempt
    window: WindowNumber | None
    """None: the snapshot was taken at an out-of-memory error."""
    rank: Rank
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
    device_bytes: int | None = None
    """What the device has in all; None where no trace of the rank says it."""
    requested_bytes: int | None = None
    """What the allocation asked for that failed; None in a window."""
    top: list[MemoryFrame] = field(default_factory=list)
    """Most bytes first, at most ten."""

    @property
    def fragmentation_bytes(self) -> int:
        """Reserved and not allocated at the end."""
        return self.end_reserved_bytes - self.end_allocated_bytes

    @property
    def free_bytes(self) -> int | None:
        """Of the device, not reserved at the peak; None where its size is not known."""
        return None if self.device_bytes is None else self.device_bytes - self.peak_reserved_bytes

    @property
    def growth_bytes_per_step(self) -> float | None:
        """From the peak of the first step to that of the last; None for fewer than two steps."""
        steps = len(self.peak_per_step) - 1
        return (self.peak_per_step[-1] - self.peak_per_step[0]) / steps if steps > 0 else None


@dataclass(kw_only=True)
class WorkGroup:
    """Kernels of one kind of work, per step and on average over the ranks."""

    name: str
    ms_per_step: float
    kernels_per_step: float
    tflops: float | None = None
    """10^12 operations per second while they run; None where less than half of their time could be counted."""
    gb_s: float | None = None
    """10^9 bytes per second, at least: each input read once and one output written; None as above."""
    peak_pct: float | None = None
    """The nearer of both to the device's peak; None for a device that is not known."""
    bound: str = ""
    """``math``, ``memory``, ``launch`` (kernels shorter than 10 us on average), or empty where it is not known."""


@dataclass(kw_only=True)
class Efficiency:
    """How well the devices are used. Counted are matrix products whose shapes were recorded, so operations are a lower
    limit."""

    device: str | None
    peak_tflops: float | None
    """Of the device: dense, bf16."""
    peak_gb_s: float | None
    shapes: bool
    """Whether shapes were recorded (``record_shapes``): without them no operations are known."""
    tflop_per_step: float | None
    """10^12 operations that one rank counted in a step."""
    tflops: float | None
    """These per second of the whole step."""
    peak_pct: float | None
    """``tflops`` of the peak: what others call hardware FLOP utilisation."""
    counted_pct: float
    """Share of compute time whose operations were counted."""
    plain_ms: float
    """Of matrix products per step, in kernels that use no tensor cores by their names."""
    small_kernels: float
    """Kernels shorter than 10 us per step."""
    small_ms: float
    compiled: bool
    """Kernels of torch.compile were seen; likewise the next, CUDA graphs."""
    graphs: bool
    groups: list[WorkGroup] = field(default_factory=list)
    """Most time first."""


@dataclass(kw_only=True)
class PathPiece:
    """A stretch of the critical path of one step."""

    rank: Rank | None
    """None where the ranks share it."""
    kind: str
    """``compute``, ``host``, ``transfer``, or ``launch``: latencies and gaps between pieces of work."""
    name: str
    """Of the kernel with most time in it, of what the host does where that is known, of the collective; or empty."""
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
    """The chain of work that decides how long a step takes, by replay. What is not on it can be shortened in vain."""

    attempt: Attempt
    window: WindowNumber
    step: Step | None
    """The median step of the window, whose pieces are here."""
    step_ms: float
    parts: list[PathPart] = field(default_factory=list)
    """Over all steps, most time first."""
    pieces: list[PathPiece] = field(default_factory=list)
    """In order of time, at most 400."""
