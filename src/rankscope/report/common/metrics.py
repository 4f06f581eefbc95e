"""What each number means. The page shows these definitions on hover; docs/metrics.md is made from them.

Rebuild the document with::

    python -c "from rankscope.report import metrics; print(metrics.as_markdown(), end='')" > docs/metrics.md
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["METRICS", "Metric", "as_markdown", "hover"]


class Metric(NamedTuple):
    """One number: how it is called, its unit, what it is, what is in and out, and how HTA's differs."""

    section: str
    label: str
    unit: str
    definition: str
    bounds: str = ""
    """What is in and what is out."""
    hta: str = ""
    """How the number of the same or a similar name in HTA differs."""


_V, _R, _I, _S, _P, _G, _K, _Q, _M, _H, _T, _C = (
    "Verdict and findings",
    "Ranks",
    "Where the rest of the time goes",
    "Steps",
    "Pulse",
    "Process groups",
    "Kernels and operators",
    "Launch queue",
    "Device memory",
    "Health",
    "Clocks and matching",
    "Recording",
)

METRICS: dict[str, Metric] = {
    "cost_ms_per_step": Metric(
        _V,
        "Cost",
        "ms per step",
        "What the job's step would shrink by without the cause.",
        "An estimate of the gain, not the time that ranks wait: waiting that overlaps useful work costs nothing.",
        "HTA's potential stragglers are always as many as were asked for, late or not, and come without a cost.",
    ),
    "cost_error_ms": Metric(_V, "Cost error", "ms per step", "The uncertainty of the cost, plus or minus."),
    "cost_share": Metric(_V, "Share of the step", "%", "The cost divided by the job's step time."),
    "share_of_steps_pct": Metric(
        _V,
        "Steps that lose time",
        "% of recorded steps",
        "Steps that would shrink by more than 2 % without the cause.",
        "Few steps and a high cost are an episode, not a habit.",
    ),
    "what_if": Metric(
        _V,
        "Gain",
        "ms per step",
        "What each step would shrink by if the recorded steps were replayed under this assumption.",
        "Assumptions are replayed one by one; their gains do not add up. Where it was measured, what recording adds "
        "to a step is taken off the gain of a faster host.",
    ),
    "what_if_pct": Metric(_V, "Of the step", "%", "The gain divided by the job's step time."),
    "job_step_ms": Metric(_V, "Step time", "ms", "The job's step time that the cost refers to, while recorded."),
    "confidence": Metric(
        _V,
        "Confidence",
        "high, medium or low",
        "How sure the diagnosis is that the cause and the rank are right.",
        "It says nothing about the size of the cost; the cost error does.",
    ),
    "p_value": Metric(
        _V,
        "p-value",
        "0 to 1",
        "How often chance alone would make one rank look as late as this.",
    ),
    "steps": Metric(_R, "Steps", "count", "Steps of this rank that were recorded and analysed."),
    "step_ms.median": Metric(
        _R,
        "Step",
        "ms, median",
        "The median duration of the rank's recorded steps: from the end of the last work of one step to that of the "
        "next, on the device; without one, on the host.",
        "Recording itself is in it; see recording overhead.",
        "HTA drops the last step of a trace.",
    ),
    "step_ms.p95": Metric(_R, "p95", "ms, 95th percentile", "The step duration that 95 % of the steps stay below."),
    "compute_pct": Metric(
        _R,
        "Compute",
        "% of window",
        "Time in which the device (without one: the rank's main thread) computes.",
        "Includes compute that runs beside communication or copies. Overlapping kernels count once.",
        "HTA sorts some kernels into the wrong kind; ours come from one table of names.",
    ),
    "exposed_comm_pct": Metric(
        _R,
        "Exposed comm.",
        "% of window",
        "Communication of this rank that no compute of the same rank hides.",
        "Includes waiting for other ranks inside collectives.",
    ),
    "memcpy_pct": Metric(
        _R,
        "Copies",
        "% of window",
        "Copies and memsets that neither compute nor communication hides.",
    ),
    "idle_pct": Metric(
        _R,
        "Idle",
        "% of window",
        "Time in which the rank does none of the three: no compute, no communication, no copy.",
        "Compute, exposed communication, copies and idle sum to 100 %.",
        "HTA's temporal breakdown states an idle share too, over the steps that HTA keeps.",
    ),
    "comm_pct": Metric(
        _R,
        "Comm.",
        "% of window",
        "All communication of this rank, hidden or not. Not part of the sum of 100 %.",
    ),
    "overlap_pct": Metric(
        _R,
        "Overlap",
        "% of communication",
        "The share of this rank's communication that is hidden behind its own compute.",
        "Refers to communication time, not to the window.",
        "The same definition as HTA's comm/comp overlap. HTA rounds times to microseconds unless told otherwise, "
        "which can push it above 100 %.",
    ),
    "wait_ms_per_step": Metric(
        _R,
        "Waits",
        "ms per step",
        "Time this rank's collectives wait for the last rank to arrive, summed over a step.",
        "Waiting is not cost: it may be hidden by compute.",
    ),
    "caused_wait_ms_per_step": Metric(
        _R,
        "Makes others wait",
        "ms per step",
        "Waiting of the other ranks while this rank is the last to arrive, summed over them.",
        "Grows with the number of ranks; compare ranks, not runs.",
    ),
    "waiting_ms": Metric(
        _I,
        "Waiting for peers",
        "ms per step",
        "Exposed communication before the last rank has arrived at the collective.",
        "Only what no compute hides; the ranks table's waits include hidden waiting.",
    ),
    "transfer_ms": Metric(
        _I,
        "Transfer",
        "ms per step",
        "Exposed communication after the last rank has arrived: data on the wire.",
    ),
    "input_ms": Metric(
        _I,
        "Idle: input",
        "ms per step",
        "Idle while the host sits in the data loader.",
        "",
        "HTA's idle breakdown knows host wait, kernel wait and other; it does not know the data loader.",
    ),
    "host_ms": Metric(
        _I,
        "Idle: host",
        "ms per step",
        "Idle for any other reason on the host: Python, launches, synchronisation, pauses.",
    ),
    "copy_ms": Metric(
        _I,
        "Copies",
        "ms per step",
        "Copies and memsets that neither compute nor communication hides.",
    ),
    "lateness_ms": Metric(
        _S,
        "Lateness",
        "ms",
        "How much later than the median of the other ranks this rank arrives at the step's collectives, on average.",
        "On aligned clocks. Negative is early. Differences below the clock error mean nothing.",
        "HTA compares raw clocks.",
    ),
    "duration_ms": Metric(
        _S,
        "Step time",
        "ms",
        "From the end of the last work of the step before to that of this one, on the device; without one, on the "
        "host.",
    ),
    "step.exposed_comm_ms": Metric(
        _S, "Exposed communication", "ms", "Communication of this rank and step that no compute of the rank hides."
    ),
    "step.idle_ms": Metric(
        _S,
        "Idle",
        "ms",
        "Time of this step with no compute, no communication and no copy.",
        "On a device, from the last work of the step before to the last of this one: a queue is not idleness.",
    ),
    "step.input_ms": Metric(
        _S,
        "Idle: input",
        "ms",
        "Idle time of this step in which the host sits in the data loader.",
        "Summed over the steps it is the rank's, but for what lies between two steps on a CPU.",
    ),
    "step.wait_ms": Metric(
        _S, "Waiting", "ms", "Time this rank's collectives of this step wait for the last rank, hidden or not."
    ),
    "calls_per_step": Metric(_G, "Calls", "per step", "Collectives of this kind in this group and step."),
    "megabytes_per_call": Metric(
        _G, "Size", "MB per call", "Bytes of the call's message, averaged. 1 MB is 10⁶ bytes."
    ),
    "group.wait_ms_per_step": Metric(
        _G, "Wait", "ms per step", "From a rank's own arrival to the last arrival, averaged over the group's ranks."
    ),
    "group.transfer_ms_per_step": Metric(
        _G, "Transfer", "ms per step", "From the last arrival to the collective's end."
    ),
    "pulse.step_ms": Metric(
        _P,
        "Step in the curve",
        "ms",
        "Median over the ranks of their mean step among neighbouring steps; the curve has at most 400 points.",
        "All steps of the last attempt but its first, whose beginning nobody saw; recorded ones are in.",
    ),
    "pulse.slowest_ms": Metric(_P, "Longest in the curve", "ms", "The longest single step of any rank among these."),
    "pulse.input_ms": Metric(
        _P,
        "Input in the curve",
        "ms",
        "Mean time in DataLoader.__next__ of the rank that waits most for it among these steps.",
    ),
    "pulse.typical": Metric(
        _P,
        "Typical",
        "yes or no",
        "Whether the unprofiled steps around the windows take as long as those of the whole run: medians within 10 %.",
        "20 steps on either side of each window. Not said where these are more than half of the run.",
    ),
    "pulse.steps": Metric(
        _P,
        "Unprofiled steps",
        "count",
        "Timed steps of the last attempt in which no rank recorded, warmed up or closed a window.",
    ),
    "pulse.median_ms": Metric(
        _P,
        "Step time",
        "ms, median",
        "Time from the end of one step to the end of the next on this host, over the unprofiled steps.",
        "Where the host waits for its device only every so many steps, each counts as the mean of as many. Ranks in "
        "step wait for the slowest, so that all of them show its time.",
    ),
    "pulse.p99_ms": Metric(_P, "Step time, p99", "ms", "99 % of the unprofiled steps are shorter."),
    "pulse.longest_ms": Metric(_P, "Longest step", "ms", "The longest unprofiled step."),
    "pulse.longest_step": Metric(_P, "Longest step is", "step", "The number of the longest unprofiled step, from 0."),
    "pulse.drift_pct": Metric(
        _P,
        "Drift",
        "%",
        "Median of the last quarter of the unprofiled steps against the median of the first.",
        "Not given below 40 steps.",
    ),
    "pulse.input_pct": Metric(
        _P, "Input", "% of the time", "Share of the unprofiled steps' time spent in DataLoader.__next__."
    ),
    "pulse.gc_ms_per_step": Metric(
        _P, "Garbage collection", "ms per step", "What Python's garbage collector took of the unprofiled steps."
    ),
    "group.exposed_ms_per_step": Metric(
        _G,
        "Exposed",
        "ms per step",
        "The part of wait and transfer that no compute of the same rank hides.",
        "Collectives at once share their time: all together they are the rank's exposed communication.",
    ),
    "bus_gb_s": Metric(
        _G,
        "Bus bandwidth",
        "GB/s",
        "Bytes over the transfer time alone, times the collective's bus factor as in NCCL's tests. 1 GB is 10⁹ bytes.",
        "Factor 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all. Waiting is out, "
        "so it can be set against the link's speed.",
        "HTA's memory bandwidth is that of copies, not of collectives.",
    ),
    "link_gb_s": Metric(
        _G,
        "Link",
        "GB/s",
        "What the link between the group's devices could give in one direction, by their data sheet; not measured.",
        "Known only where all ranks of the group are on one host with the same, known device; else unknown. Boards "
        "without NVSwitch give two devices only a part of it, and an all-reduce inside NVSwitch (NVLink SHARP) can "
        "exceed it.",
    ),
    "link_share_pct": Metric(
        _G,
        "Of the link",
        "%",
        "Bus bandwidth over what the link could give.",
        "Small calls are bound by latency and stay far below.",
    ),
    "kernel.ms_per_step": Metric(
        _K,
        "Time",
        "ms per step",
        "Summed duration in one step, averaged over the ranks that ran it.",
        "Kernels that run side by side both count, so the sum can exceed the step.",
        "HTA's kernel breakdown is wrong above ten kernels.",
    ),
    "launches_per_step": Metric(_K, "Launches", "per step", "How often it runs in one step."),
    "share_pct": Metric(_K, "Share", "% of kernel time", "Its time over all kernel or operator time of those ranks."),
    "max_over_median": Metric(
        _K,
        "Max / median",
        "ratio",
        "Time on the rank with most of it, over the rank in the middle. 1.00 is even.",
    ),
    "starved_pct": Metric(
        _Q,
        "Starved",
        "% of window",
        "Time in which nothing launched is outstanding and nothing runs: the device waits for its host.",
        "Waiting inside a collective is not in it, since the collective runs.",
    ),
    "median_outstanding": Metric(
        _Q,
        "Outstanding",
        "launches, median",
        "What was launched and has not begun, on all streams together, weighted by time.",
        "Copies and communication count. Near zero: the device starts what the host launches at once and is fed hand "
        "to mouth; hundreds: the host runs ahead.",
        "HTA's queue length is per stream and not weighted by time.",
    ),
    "max_outstanding": Metric(_Q, "Most", "launches", "The most that was outstanding at any time."),
    "median_delay_us": Metric(
        _Q, "Launch delay", "µs, median", "From the start of a launch to the start of its work on the device."
    ),
    "peak_allocated_bytes": Metric(
        _M,
        "Peak allocated",
        "GiB (2³⁰ bytes)",
        "The most memory that tensors held at one time in the window.",
        "Bytes asked for, without rounding. Without a snapshot: the allocator's own count, which rounds up.",
    ),
    "growth_bytes_per_step": Metric(
        _M,
        "Growth of the peak",
        "MiB (2²⁰ bytes) per step",
        "The most allocated in the last recorded step less that in the first, over the steps between.",
        "In a steady job there is none.",
    ),
    "peak_reserved_bytes": Metric(
        _M,
        "Peak reserved",
        "GiB (2³⁰ bytes)",
        "The most memory that PyTorch's allocator held from the device, used or not.",
        "Memory outside PyTorch (CUDA context, NCCL's buffers) is not in it.",
    ),
    "fragmentation_bytes": Metric(
        _M, "Reserved, unused", "GiB (2³⁰ bytes)", "Reserved and not allocated at the end of the window."
    ),
    "segment_allocs": Metric(
        _M,
        "Device allocations",
        "count",
        "Times the allocator took memory from the device (cudaMalloc, or cuMemMap with expandable segments).",
        "In a steady job there are none: each one stops the device or the host.",
    ),
    "segment_frees": Metric(_M, "Device frees", "count", "Times the allocator gave memory back to the device."),
    "requested_bytes": Metric(
        _M, "Asked for", "GiB (2³⁰ bytes)", "The allocation that failed, at an out-of-memory error."
    ),
    "frame_bytes": Metric(
        _M, "Alive at the peak", "GiB (2³⁰ bytes)", "Memory that this line allocated and that was alive at the peak."
    ),
    "frame_count": Metric(_M, "Allocations", "count", "How many allocations that is."),
    "sm_mhz": Metric(
        _H,
        "SM clock",
        "MHz, median",
        "Clock of the device's cores in the recorded windows, sampled once a second on its node.",
        "Of a window in which no sample fell, the samples up to 5 s before and after it.",
    ),
    "sm_max_mhz": Metric(_H, "SM clock, most", "MHz", "What the device's cores could run at."),
    "memory_mhz": Metric(_H, "Memory clock", "MHz, median", "Clock of the device's memory."),
    "utilisation_pct": Metric(
        _H,
        "Busy",
        "% of time, median",
        "Share of the driver's last sampling interval in which a kernel ran, as the driver tells it.",
        "A kernel that waits in a collective counts. It says nothing of how much of the device was busy.",
    ),
    "power_w": Metric(_H, "Power", "W, median", "What the device draws."),
    "power_limit_w": Metric(_H, "Power limit", "W", "What it may draw."),
    "temperature_c": Metric(_H, "Temperature", "°C, highest", "Of the device (on AMD devices, of its hottest spot)."),
    "ecc_uncorrected": Metric(
        _H, "ECC uncorrected", "count", "Memory errors that lost data, since the driver was loaded."
    ),
    "ecc_corrected": Metric(
        _H, "ECC corrected", "count", "Memory errors that were mended, since the driver was loaded."
    ),
    "pcie_generation": Metric(
        _H, "PCIe generation", "best seen", "Speed of the device's link.", "A link at rest is slow by design."
    ),
    "pcie_width": Metric(_H, "PCIe width", "lanes, best seen", "Lanes of the device's link in use."),
    "pcie_replays": Metric(_H, "PCIe replays", "count", "Transfers repeated on the link within the recorded windows."),
    "throttle": Metric(
        _H,
        "Clock held down by",
        "% of samples",
        "Why the clock was below what it could be, as the driver tells it, and in how many of the samples.",
        "Being idle and clocks set by an administrator are reasons, too.",
    ),
    "gc_ms_per_step": Metric(
        _H,
        "Garbage collection",
        "ms per step",
        "How long Python's garbage collector held the rank's process in the recorded steps.",
    ),
    "cpus": Metric(_H, "CPUs", "count", "CPUs that the job may use there: affinity, or the cgroup's quota where less."),
    "load_1m": Metric(
        _H, "Load", "tasks, highest", "Tasks that ran, waited to run or waited for a disk, averaged over a minute."
    ),
    "cpu_throttled_pct": Metric(
        _H,
        "CPU quota spent",
        "% of periods",
        "Scheduling periods in which the job's cgroup had used its CPU quota up and was held until the next.",
        "From the sample before each window to the one after; each is at most a second away, or up to 5 s.",
    ),
    "cpu_throttled_ms": Metric(
        _H, "Held for that", "ms", "For how long, summed over the cgroup's CPUs and the recorded windows."
    ),
    "memory_available_bytes": Metric(
        _H, "Memory available", "GiB (2³⁰ bytes), lowest", "Memory that programs could still get without swapping."
    ),
    "pressure_cpu_pct": Metric(
        _H, "CPU pressure", "% of 10 s, highest", "Time in which at least one task waited for a CPU (PSI, some avg10)."
    ),
    "pressure_memory_pct": Metric(
        _H, "Memory pressure", "% of 10 s, highest", "Time in which at least one task waited for memory."
    ),
    "pressure_io_pct": Metric(
        _H, "I/O pressure", "% of 10 s, highest", "Time in which at least one task waited for input or output."
    ),
    "error_us": Metric(
        _T,
        "Clock error",
        "µs",
        "95 % of the ends of matched collectives agree within this after alignment.",
        "Differences between ranks below it are noise.",
        "HTA trusts raw clocks.",
    ),
    "offset_us": Metric(_T, "Clock offset", "µs", "Added to the rank's own clock to reach the common one."),
    "count": Metric(_T, "Collectives", "count", "Collectives that the ranks recorded, one per call and rank group."),
    "matched_pct": Metric(
        _T,
        "Matched",
        "% of collectives",
        "Share of the collectives recognised as the same call on all ranks of their group.",
        "Waiting, transfer and lateness use matched collectives only.",
    ),
    "recording_overhead_pct": Metric(
        _C,
        "Recording overhead",
        "%",
        "The median step while recorded against the usual one before the window.",
        "Not given where the host ran ahead of its device and no rhythm tells how long a step took.",
    ),
    "residue_pct": Metric(
        _C,
        "Residue",
        "%",
        "The usual step after the last window against that before it.",
    ),
    "longest_stall_ms": Metric(
        _C,
        "Longest stall",
        "ms",
        "The longest time that opening or closing a window held up a training thread.",
    ),
}


def hover(key: str) -> str:
    """The definition as shown on hover: unit, definition, bounds."""
    metric = METRICS[key]
    return " ".join(part for part in (f"[{metric.unit}]", metric.definition, metric.bounds) if part)


def as_markdown() -> str:
    """Return docs/metrics.md."""
    lines = [
        "# What each number means",
        "",
        "The report shows these definitions when you point at a column's head or a figure. This file is made from",
        "`rankscope.report.common.metrics`; a test holds both together.",
        "",
        "Two things to keep in mind:",
        "",
        "- **Waiting is not cost.** A collective that waits behind compute costs nothing. The cost of a cause is what",
        "  the job's step would shrink by without it.",
        "- **Compute, exposed communication, copies and idle sum to 100 %** of a rank's recorded window, which begins",
        "  with its first step, or on a device where work queued before that has ended. The bars of",
        "  the report split exposed communication into waiting and transfer, and idle into input and host, in the",
        "  proportion of the times in *Where the rest of the time goes*.",
        "",
        "Without an accelerator, *device* means the rank's main thread, and operators stand where kernels would.",
    ]
    section = ""
    for key, metric in METRICS.items():
        if metric.section != section:
            section = metric.section
            lines += ["", f"## {section}"]
        lines += ["", f"### {metric.label}", "", f"`{key}`, {metric.unit}. {metric.definition}"]
        if metric.bounds:
            lines += ["", f"In and out: {metric.bounds}"]
        if metric.hta:
            lines += ["", f"HTA: {metric.hta}"]
    return "\n".join(lines) + "\n"
