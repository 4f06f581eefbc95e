"""Tables of device memory: peaks by rank and window, and the lines of code that hold it."""

from __future__ import annotations

from rankscope.records.report import ClusterReport
from rankscope.records.rows import MemoryFrame, MemoryRow
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, number, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "across", "frames", "memory"]

MOST_LINES = 20

METRICS: dict[str, Metric] = {
    "peak_allocated_bytes": Metric(
        "Device memory",
        "Peak allocated",
        "GiB (2³⁰ bytes)",
        "The most memory that tensors held at one time in the window.",
        "Bytes asked for, without rounding. Without a snapshot: the allocator's own count, which rounds up.",
    ),
    "growth_bytes_per_step": Metric(
        "Device memory",
        "Growth of the peak",
        "MiB (2²⁰ bytes) per step",
        "The most allocated in the last recorded step less that in the first, over the steps between.",
        "In a steady job there is none.",
    ),
    "peak_reserved_bytes": Metric(
        "Device memory",
        "Peak reserved",
        "GiB (2³⁰ bytes)",
        "The most memory that PyTorch's allocator held from the device, used or not.",
        "Memory outside PyTorch (CUDA context, NCCL's buffers) is not in it.",
    ),
    "fragmentation_bytes": Metric(
        "Device memory", "Reserved, unused", "GiB (2³⁰ bytes)", "Reserved and not allocated at the end of the window."
    ),
    "free_bytes": Metric(
        "Device memory",
        "Free at the peak",
        "GiB (2³⁰ bytes)",
        "What the device has in all, less the most that PyTorch's allocator reserved.",
        "The CUDA context and NCCL's buffers take their part of it.",
    ),
    "segment_allocs": Metric(
        "Device memory",
        "Device allocations",
        "count",
        "Times the allocator took memory from the device (cudaMalloc, or cuMemMap with expandable segments).",
        "In a steady job there are none: each one stops the device or the host.",
    ),
    "segment_frees": Metric(
        "Device memory", "Device frees", "count", "Times the allocator gave memory back to the device."
    ),
    "requested_bytes": Metric(
        "Device memory", "Asked for", "GiB (2³⁰ bytes)", "The allocation that failed, at an out-of-memory error."
    ),
    "frame_bytes": Metric(
        "Device memory",
        "Alive at the peak",
        "GiB (2³⁰ bytes)",
        "Memory that this line allocated and that was alive at the peak.",
    ),
    "frame_count": Metric("Device memory", "Allocations", "count", "How many allocations that is."),
    "frame_most": Metric(
        "Device memory",
        "Most",
        "GiB (2³⁰ bytes)",
        "What the line holds at the peak of the rank where that is most.",
        "Of each rank the peak at an out-of-memory error, else its highest of a window, in the last attempt.",
    ),
    "frame_median": Metric(
        "Device memory",
        "Median rank",
        "GiB (2³⁰ bytes)",
        "The same of the rank in the middle, of those with a snapshot.",
        "Unknown where more than half of them hold too little for the ten lines that a snapshot's summary keeps.",
    ),
}


def memory(report: ClusterReport) -> Table:
    """Return one row per rank and window (or out-of-memory error) with recorded memory; empty columns are left out."""
    rows = report.memory
    measured: list[tuple[str, list[float | None], int | None]] = [
        ("peak_allocated_bytes", [_gib(r.peak_allocated_bytes) for r in rows], 2),
        ("growth_bytes_per_step", [_mib(r.growth_bytes_per_step) for r in rows], None),
        ("peak_reserved_bytes", [_gib(r.peak_reserved_bytes) for r in rows], 2),
        ("fragmentation_bytes", [_gib(r.fragmentation_bytes) for r in rows], 2),
        ("free_bytes", [_gib(r.free_bytes) for r in rows], 2),
        ("segment_allocs", [r.segment_allocs for r in rows], 0),
        ("segment_frees", [r.segment_frees for r in rows], 0),
        ("requested_bytes", [_gib(r.requested_bytes) for r in rows], 2),
    ]
    heads = [Column("Rank", numeric=True), Column("When")]
    columns = [[number(r.rank) for r in rows], [text(_when(r)) for r in rows]]
    for key, values, decimals in measured:
        if any(value is not None for value in values):
            heads.append(metric(METRICS[key]))
            columns.append(numbers(values, decimals))
    if any(r.file for r in rows):
        heads.append(Column("Snapshot"))
        columns.append([text(r.file, 60) for r in rows])
    marks = ["" if r.complete else "partial" for r in rows]
    short = sum(not r.complete for r in rows)
    note = f"{short} of these histories began after their window did; the peak may have been higher." if short else ""
    return Table("memory", heads, [Row(c, "", mark) for c, mark in zip(assemble(columns), marks, strict=True)], note)


def frames(report: ClusterReport) -> Table:
    """Return the lines of code that hold the memory at each peak."""
    rows = [(row, frame) for row in report.memory for frame in row.top]
    columns = [
        [text(_line(frame), 90) for _, frame in rows],
        numbers([_gib(frame.bytes) for _, frame in rows], 3),
        numbers([float(frame.count) for _, frame in rows], 0),
        [number(row.rank) for row, _ in rows],
        [text(_when(row)) for row, _ in rows],
    ]
    heads = [
        Column("Line"),
        metric(METRICS["frame_bytes"]),
        metric(METRICS["frame_count"]),
        Column("Rank", numeric=True),
        Column("When"),
    ]
    return Table("frames", heads, [Row(cells) for cells in assemble(columns)])


def _line(frame: MemoryFrame) -> str:
    return f"{frame.frame} ({frame.what})" if frame.what else frame.frame


def across(report: ClusterReport) -> Table:
    """Compare the same line on all ranks: which of them holds more than the others."""
    last = max((row.attempt for row in report.memory), default=0)
    peaks: dict[int, MemoryRow] = {}
    for row in report.memory:
        if row.top and row.attempt == last and _worse(row, peaks.get(row.rank)):
            peaks[row.rank] = row
    by_line: dict[str, dict[int, int]] = {}
    for rank, row in peaks.items() if len(peaks) > 1 else ():
        for frame in row.top:
            held_by = by_line.setdefault(_line(frame), {})
            held_by[rank] = held_by.get(rank, 0) + frame.bytes
    found = sorted(by_line.items(), key=lambda item: -max(item[1].values()))[:MOST_LINES]
    most = [max(held, key=lambda rank: held[rank]) for _, held in found]
    columns = [
        [text(line, 90) for line, _ in found],
        numbers([_gib(held[rank]) for (_, held), rank in zip(found, most, strict=True)], 3),
        [number(rank) for rank in most],
        numbers([_gib(_middle(list(held.values()), len(peaks))) for _, held in found], 3),
        numbers([float(len(held)) for _, held in found], 0),
    ]
    heads = [
        Column("Line"),
        metric(METRICS["frame_most"]),
        Column("On rank", numeric=True),
        metric(METRICS["frame_median"]),
        Column("Ranks that list it", numeric=True),
    ]
    return Table("lines", heads, [Row(cells) for cells in assemble(columns)])


def _worse(row: MemoryRow, other: MemoryRow | None) -> bool:
    """Return whether ``row`` is worse than ``other``: an out-of-memory error before any window, then the higher
    peak."""
    if other is None:
        return True
    return (row.window is None, row.peak_allocated_bytes) > (other.window is None, other.peak_allocated_bytes)


def _middle(known: list[int], ranks: int) -> int | None:
    """Return the lower median over all ranks, where unknown ranks count as less than any known one."""
    place = (ranks - 1) // 2 - (ranks - len(known))
    return sorted(known)[place] if place >= 0 else None


def _when(row: MemoryRow) -> str:
    if row.window is None:
        return f"attempt {row.attempt}, out of memory"
    return f"attempt {row.attempt}, window {row.window}"


def _gib(size: float | None) -> float | None:
    return None if size is None else size / 2**30


def _mib(size: float | None) -> float | None:
    return None if size is None else size / 2**20


def _build(report: ClusterReport) -> Variables | None:
    if not report.memory:
        return None
    lead = []
    if any(row.file for row in report.memory):
        lead.append("From PyTorch's memory history. The snapshots open in pytorch.org/memory_viz.")
    if not all(row.file for row in report.memory):
        lead.append(
            "Ranks without a snapshot: from the allocator's totals in their traces, which do not tell who holds the "
            "memory."
        )
    return tables(
        " ".join(lead),
        ("Device memory", memory(report)),
        ("The same line on all ranks", across(report)),
        ("Held at the peak", frames(report)),
    )


SECTION = Section("memory", "Memory", "Device memory", _build, METRICS, optional=True)
