"""Tables of health: devices and processes by rank, hosts by name. A column without any value is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.listing import some_ranks
from rankscope.records.report import ClusterReport
from rankscope.records.rows import HealthRow
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Cell, Column, Row, Table, assemble, metric, number, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "devices", "hosts"]

METRICS: dict[str, Metric] = {
    "sm_mhz": Metric(
        "Health",
        "SM clock",
        "MHz, median",
        "Clock of the device's cores in the recorded windows, sampled once a second on its node.",
        "Of a window in which no sample fell, the samples up to 5 s before and after it.",
    ),
    "sm_max_mhz": Metric("Health", "SM clock, most", "MHz", "What the device's cores could run at."),
    "memory_mhz": Metric("Health", "Memory clock", "MHz, median", "Clock of the device's memory."),
    "utilisation_pct": Metric(
        "Health",
        "Busy",
        "% of time, median",
        "Share of the driver's last sampling interval in which a kernel ran, as the driver tells it.",
        "A kernel that waits in a collective counts. It says nothing of how much of the device was busy.",
    ),
    "power_w": Metric("Health", "Power", "W, median", "What the device draws."),
    "power_limit_w": Metric("Health", "Power limit", "W", "What it may draw."),
    "temperature_c": Metric(
        "Health", "Temperature", "°C, highest", "Of the device (on AMD devices, of its hottest spot)."
    ),
    "ecc_uncorrected": Metric(
        "Health", "ECC uncorrected", "count", "Memory errors that lost data, since the driver was loaded."
    ),
    "ecc_corrected": Metric(
        "Health", "ECC corrected", "count", "Memory errors that were mended, since the driver was loaded."
    ),
    "pcie_generation": Metric(
        "Health", "PCIe generation", "best seen", "Speed of the device's link.", "A link at rest is slow by design."
    ),
    "pcie_width": Metric("Health", "PCIe width", "lanes, best seen", "Lanes of the device's link in use."),
    "pcie_replays": Metric(
        "Health", "PCIe replays", "count", "Transfers repeated on the link within the recorded windows."
    ),
    "other_processes": Metric(
        "Health",
        "Other processes",
        "count, most seen",
        "Processes that have a compute context on the device, beyond the job's ranks that use it.",
        "In a container the driver may list none.",
    ),
    "throttle": Metric(
        "Health",
        "Clock held down by",
        "% of samples",
        "Why the clock was below what it could be, as the driver tells it, and in how many of the samples.",
        "Being idle and clocks set by an administrator are reasons, too.",
    ),
    "gc_ms_per_step": Metric(
        "Health",
        "Garbage collection",
        "ms per step",
        "How long Python's garbage collector held the rank's process in the recorded steps.",
    ),
    "cpus": Metric(
        "Health", "CPUs", "count", "CPUs that the job may use there: affinity, or the cgroup's quota where less."
    ),
    "load_1m": Metric(
        "Health",
        "Load",
        "tasks, highest",
        "Tasks that ran, waited to run or waited for a disk, averaged over a minute.",
    ),
    "cpu_throttled_pct": Metric(
        "Health",
        "CPU quota spent",
        "% of periods",
        "Scheduling periods in which the job's cgroup had used its CPU quota up and was held until the next.",
        "From the sample before each window to the one after; each is at most a second away, or up to 5 s.",
    ),
    "cpu_throttled_ms": Metric(
        "Health", "Held for that", "ms", "For how long, summed over the cgroup's CPUs and the recorded windows."
    ),
    "memory_available_bytes": Metric(
        "Health",
        "Memory available",
        "GiB (2³⁰ bytes), lowest",
        "Memory that programs could still get without swapping.",
    ),
    "pressure_cpu_pct": Metric(
        "Health",
        "CPU pressure",
        "% of 10 s, highest",
        "Time in which at least one task waited for a CPU (PSI, some avg10).",
    ),
    "others_cpu_pct": Metric(
        "Health",
        "CPUs used by others",
        "% of the job's",
        "Share of the CPUs that the job may use which processes outside the job kept busy in the recorded windows.",
    ),
    "pressure_memory_pct": Metric(
        "Health", "Memory pressure", "% of 10 s, highest", "Time in which at least one task waited for memory."
    ),
    "pressure_io_pct": Metric(
        "Health", "I/O pressure", "% of 10 s, highest", "Time in which at least one task waited for input or output."
    ),
}

_CLOCK: tuple[tuple[str, int], ...] = (("sm_mhz", 0), ("sm_max_mhz", 0))
_DEVICE: tuple[tuple[str, int], ...] = (
    ("temperature_c", 0),
    ("power_w", 0),
    ("power_limit_w", 0),
    ("utilisation_pct", 0),
    ("other_processes", 0),
    ("memory_mhz", 0),
    ("pcie_generation", 0),
    ("pcie_width", 0),
    ("pcie_replays", 0),
    ("ecc_corrected", 0),
    ("ecc_uncorrected", 0),
    ("gc_ms_per_step", 2),
)
"""Field and decimals, in the order of the columns."""
_ERRORS = frozenset({"pcie_replays", "ecc_corrected", "ecc_uncorrected"})
"""Columns that are left out if all values are zero or unknown."""
_HOST: tuple[tuple[str, int], ...] = (
    ("cpus", 1),
    ("load_1m", 1),
    ("cpu_throttled_pct", 1),
    ("cpu_throttled_ms", 0),
    ("memory_available_bytes", 1),
    ("pressure_cpu_pct", 1),
    ("others_cpu_pct", 1),
    ("pressure_memory_pct", 1),
    ("pressure_io_pct", 1),
)


def devices(report: ClusterReport) -> Table:
    """Return one row per rank of which more is known than its host."""
    rows = sorted((r for r in report.health if r.samples or r.gc_ms_per_step is not None), key=lambda r: r.rank)
    heads = [Column("Rank", numeric=True)]
    columns = [[number(r.rank) for r in rows]]
    _measured(_CLOCK, rows, heads, columns)
    if any(r.throttle for r in rows):
        heads.append(metric(METRICS["throttle"])._replace(numeric=False))
        columns.append([text(_reasons(r), 60) for r in rows])
    _measured(_DEVICE, rows, heads, columns)
    named = set(report.verdict.ranks)
    marks = ["named" if r.rank in named else "" for r in rows]
    return Table("health", heads, [Row(cells, "", mark) for cells, mark in zip(assemble(columns), marks, strict=True)])


def hosts(report: ClusterReport) -> Table:
    """Return one row per host. Its ranks saw the same values, up to sampling times; the worst is shown."""
    by_host: dict[str, list[HealthRow]] = {}
    for row in report.health:
        by_host.setdefault(row.host or words.DASH, []).append(row)
    rows = [_worst(members) for _, members in sorted(by_host.items())]
    ranks = [some_ranks((r.rank for r in members), 4) for _, members in sorted(by_host.items())]
    heads = [Column("Host"), Column("Ranks")]
    columns = [[text(r.host, 40) for r in rows], [text(found, 48) for found in ranks]]
    _measured(_HOST, rows, heads, columns)
    if len(columns) == 2:
        return Table("hosts", heads, [])
    return Table("hosts", heads, [Row(cells) for cells in assemble(columns)])


def _measured(
    fields: Sequence[tuple[str, int]], rows: Sequence[HealthRow], heads: list[Column], columns: list[list[Cell]]
) -> None:
    for key, decimals in fields:
        values = [getattr(r, key) for r in rows]
        if any(values) if key in _ERRORS else any(value is not None for value in values):
            scale = 2**-30 if key.endswith("_bytes") else 1.0
            heads.append(metric(METRICS[key]))
            columns.append(numbers([None if v is None else v * scale for v in values], decimals))


def _worst(rows: Sequence[HealthRow]) -> HealthRow:
    found = HealthRow(rank=rows[0].rank, host=rows[0].host)
    for key, _ in _HOST:
        values = [value for row in rows if (value := getattr(row, key)) is not None]
        choose: Callable[..., float] = min if key in {"cpus", "memory_available_bytes"} else max
        setattr(found, key, choose(values) if values else None)
    return found


def _reasons(row: HealthRow) -> str | None:
    return ", ".join(f"{reason} {words.pct(share, 0)}" for reason, share in row.throttle.items()) or None


def _build(report: ClusterReport) -> Variables | None:
    lead = "Sampled once a second on each node, beside the job. What is clearly wrong is among the findings."
    found = tables(lead, ("Ranks", devices(report)), ("Hosts", hosts(report)))
    return found if found["tables"] else None


SECTION = Section("health", "Health", "Health of devices and hosts", _build, METRICS, optional=True)
