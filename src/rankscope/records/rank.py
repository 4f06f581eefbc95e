"""Ranks to node helper: what one rank reports on one window, or on its whole process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rankscope.limits import Attempt, Count, FileName, LocalRank, Rank, Step, WindowNumber, WorldSize

__all__ = [
    "MARK",
    "MAX_MARKS",
    "NOT_PLACED",
    "OWN_STEP_MARK",
    "ClockSample",
    "DevicePlace",
    "HealthSample",
    "HostSample",
    "RankRecord",
    "RankStatus",
    "ScriptMark",
    "StepTimes",
    "ThreadKind",
    "ThreadTimes",
]


NOT_PLACED = "recorded, but not placed in the run directory"
"""Begin of the reason of a record whose files are still on the node."""
OWN_STEP_MARK = "rankscope.step#"
"""Prefix of the name of a range that the agent writes around each recorded step, inside ``ProfilerStep#N``."""

MARK = "rankscope.mark: "
"""Prefix of the name of the range that a mark of the script is in a recorded window."""
MAX_MARKS = 100
"""Marks of a rank that are kept, so that a mark in every step fills no record."""

RankStatus = Literal["ok", "partial", "missing", "corrupt", "skipped"]
"""``skipped``: the rank was not among those that were to record (``capture.ranks``)."""


@dataclass(kw_only=True)
class ClockSample:
    """CLOCK_REALTIME and CLOCK_MONOTONIC of one host, read back to back."""

    realtime_ns: int
    monotonic_ns: int


@dataclass(kw_only=True)
class HealthSample:
    """State of one accelerator at one moment, as its driver reports it; None: not reported.

    Sources: NVML (nvidia-ml-py) or AMD SMI. ``ecc_*`` and ``pcie_replays`` count since the driver was loaded.
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
    """Reasons why the clock is below its maximum, in words, including idleness and clocks set by an administrator."""
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    processes: int | None = None
    """Processes that have a compute context on it, the job's own included."""


@dataclass(kw_only=True)
class HostSample:
    """State of one host at one moment, as its kernel reports it.

    ``quota_periods`` and ``throttled_*`` count since the cgroup was created: scheduling periods under a CPU quota,
    those in which it was used up, and the time for which tasks were stopped by it. ``pressure_*`` is PSI's ``some
    avg10``: the share of the last 10 s in which at least one task waited for that resource.
    """

    time_ns: int
    load_1m: float | None = None
    cpus: float | None = None
    """Number of CPUs that this job may use: affinity, or the cgroup's quota if that is less."""
    quota_periods: int | None = None
    throttled_periods: int | None = None
    throttled_ms: float | None = None
    memory_available_bytes: int | None = None
    pressure_cpu_pct: float | None = None
    pressure_memory_pct: float | None = None
    pressure_io_pct: float | None = None
    cpu_busy_ms: float | None = None
    """Busy time of the CPUs that the job may use, since the host was started; likewise the next."""
    host_busy_ms: float | None = None
    """Busy time of all CPUs of the host, likewise."""
    cpu_stolen_ms: float | None = None
    """Time of these CPUs that a hypervisor gave to other guests."""
    job_cpu_ms: float | None = None
    """CPU time of the job's processes on this host."""
    cpu_waited_ms: float | None = None
    """PSI's ``some total`` of the host: time in which at least one task waited for a CPU."""
    group_cpu_waited_ms: float | None = None
    """The same of the job's cgroup."""


@dataclass(kw_only=True)
class DevicePlace:
    """Where an accelerator sits in its host."""

    numa: int | None = None
    """NUMA node; None if the host does not say."""
    nics: list[str] = field(default_factory=list)
    """RDMA adapters that are nearest to it on PCI, as the kernel names them: usually one, its rail."""
    nvlink: list[str] = field(default_factory=list)
    """UUIDs of the devices that it reaches over NVLink, directly or through switches."""


ThreadKind = Literal["training", "python", "native"]
"""The training thread; another thread that Python knows, which belongs to the script; a thread of a library (PyTorch's
autograd, a communication backend, OpenMP)."""


@dataclass(kw_only=True)
class ThreadTimes:
    """One thread of a rank's process in each recorded step, in order, as the scheduler counts it (milliseconds)."""

    tid: int
    name: str
    """As in the kernel; OpenMP's threads have the name of the process."""
    kind: ThreadKind
    cpu_ms: list[float] = field(default_factory=list)
    """Time on a CPU."""
    wait_ms: list[float] = field(default_factory=list)
    """Time in which it was runnable but not running."""


@dataclass(kw_only=True)
class StepTimes:
    """Host step times before, inside and after a window, and the profiling overhead (milliseconds)."""

    before_ms: list[float] = field(default_factory=list)
    inside_ms: list[float] = field(default_factory=list)
    after_ms: list[float] = field(default_factory=list)
    open_ms: float | None = None
    """Time of the training thread for opening the window."""
    close_ms: float | None = None
    """Time of the training thread for stopping and exporting."""


@dataclass(kw_only=True)
class ScriptMark:
    """What happened in a step, as the script said (:func:`rankscope.mark`)."""

    step: Step
    time_ns: Count
    """On CLOCK_REALTIME of the host."""
    name: str
    values: dict[str, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class RankRecord:
    """What one rank reports on one window, or, if ``window`` is None, on its whole process."""

    rank: Rank
    local_rank: LocalRank
    world_size: WorldSize
    host: str
    pid: int
    attempt: Attempt
    window: WindowNumber | None = None
    status: RankStatus = "ok"
    reason: str | None = None
    """Why the status is not ok, in words for the report."""
    device: str | None = None
    backend: str | None = None
    torch_version: str | None = None
    step_source: str | None = None
    """The signal that counted, for instance ``optimizer``."""
    step_trust: str | None = None
    """How certain it is that one such signal is one step: ``certain``, ``likely`` or ``uncertain``."""
    steps_counted: Step = 0
    first_step: Step | None = None
    last_step: Step | None = None
    """Inclusive range of the steps recorded."""
    planned_first_step: Step | None = None
    planned_last_step: Step | None = None
    agreed: bool | None = None
    """True if the window was opened as rank 0 announced; None if no announcement came."""
    origin: str = "plan"
    """Why the window was opened; see :class:`Window`."""
    capture: str | None = None
    """The backend that recorded: a name of :mod:`rankscope.capture_backends`."""
    capture_reason: str | None = None
    """Why this backend was used."""
    gc_ms: float | None = None
    """Time that Python's garbage collector stopped the training thread in the recorded steps."""
    clock: list[ClockSample] = field(default_factory=list)
    steps: StepTimes = field(default_factory=StepTimes)
    notes: list[str] = field(default_factory=list)
    trace: FileName | None = None
    """File name of the trace beside this record."""
    snapshot: FileName | None = None
    """File name of the CUDA memory snapshot beside this record."""
    columns: FileName | None = None
    """Name of the object with the columns of the trace, if these were kept instead of ``trace`` (with
    ``gather.keep=none``, and with ``suspects`` for ranks that the verdict does not name)."""
    trace_bytes: Count | None = None
    sha256: str | None = None
    cuda_used: bool = False
    open_window: WindowNumber | None = None
    """In the record of a process: the window that was open when it last wrote this record."""
    device_uuid: str | None = None
    """UUID of the accelerator, as its driver reports it."""
    place: DevicePlace | None = None
    """Where that accelerator sits, from the node helper."""
    health: list[HealthSample] = field(default_factory=list)
    """Samples of that accelerator during the window, from the node helper; without any, those just before and after."""
    host_load: list[HostSample] = field(default_factory=list)
    """Samples of its host, likewise."""
    threads: list[ThreadTimes] = field(default_factory=list)
    """Threads of this process in the recorded steps, the training thread first; empty if the kernel does not count."""
    marks: list[ScriptMark] = field(default_factory=list)
    """In the record of a process: marks of the script, the first :data:`MAX_MARKS`. In ``run.json`` they are in
    :attr:`RunManifest.marks`."""
    described: dict[str, float] = field(default_factory=dict)
    """In the record of a process: what a step of the whole job processes, as the script said
    (:func:`rankscope.describe`): ``tokens``, ``samples``, ``model_flop``."""
