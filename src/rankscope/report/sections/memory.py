"""Tables of device memory: peaks by rank and window, and which lines hold it."""

from __future__ import annotations

from rankscope.records.report import ClusterReport
from rankscope.records.rows import MemoryRow
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, number, numbers, text

__all__ = ["frames", "memory"]


def memory(report: ClusterReport) -> Table:
    """One row a rank and window (or out-of-memory error) whose memory was recorded; columns without any number go."""
    rows = report.memory
    measured: list[tuple[str, list[float | None], int | None]] = [
        ("peak_allocated_bytes", [_gib(r.peak_allocated_bytes) for r in rows], 2),
        ("growth_bytes_per_step", [_mib(r.growth_bytes_per_step) for r in rows], None),
        ("peak_reserved_bytes", [_gib(r.peak_reserved_bytes) for r in rows], 2),
        ("fragmentation_bytes", [_gib(r.fragmentation_bytes) for r in rows], 2),
        ("segment_allocs", [r.segment_allocs for r in rows], 0),
        ("segment_frees", [r.segment_frees for r in rows], 0),
        ("requested_bytes", [_gib(r.requested_bytes) for r in rows], 2),
    ]
    heads = [Column("Rank", numeric=True), Column("When")]
    columns = [[number(r.rank) for r in rows], [text(_when(r)) for r in rows]]
    for key, values, decimals in measured:
        if any(value is not None for value in values):
            heads.append(metric(key))
            columns.append(numbers(values, decimals))
    if any(r.file for r in rows):
        heads.append(Column("Snapshot"))
        columns.append([text(r.file, 60) for r in rows])
    marks = ["" if r.complete else "partial" for r in rows]
    short = sum(not r.complete for r in rows)
    note = f"{short} of these histories began after their window did; the peak may have been higher." if short else ""
    return Table("memory", heads, [Row(c, "", mark) for c, mark in zip(assemble(columns), marks, strict=True)], note)


def frames(report: ClusterReport) -> Table:
    """Which lines of code hold the memory at each peak."""
    rows = [(row, frame) for row in report.memory for frame in row.top]
    columns = [
        [text(frame.frame, 90) for _, frame in rows],
        numbers([_gib(frame.bytes) for _, frame in rows], 3),
        numbers([float(frame.count) for _, frame in rows], 0),
        [number(row.rank) for row, _ in rows],
        [text(_when(row)) for row, _ in rows],
    ]
    heads = [Column("Line"), metric("frame_bytes"), metric("frame_count"), Column("Rank", numeric=True), Column("When")]
    return Table("frames", heads, [Row(cells) for cells in assemble(columns)])


def _when(row: MemoryRow) -> str:
    if row.window is None:
        return f"attempt {row.attempt}, out of memory"
    return f"attempt {row.attempt}, window {row.window}"


def _gib(size: float | None) -> float | None:
    return None if size is None else size / 2**30


def _mib(size: float | None) -> float | None:
    return None if size is None else size / 2**20
