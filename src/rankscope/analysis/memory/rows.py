"""One row for the device memory of each rank and window: from the snapshot, or else from the totals in the trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rankscope.analysis.memory.process import read_rows
from rankscope.analysis.memory.snapshot import Bounds
from rankscope.records.rows import MemoryRow
from rankscope.trace.columns import RankTrace

__all__ = ["memory_rows"]


def memory_rows(traces: Sequence[RankTrace], snapshots: Iterable[Path]) -> tuple[list[MemoryRow], list[str]]:
    """Return a row for each snapshot, and for each trace with memory events but without a snapshot; and the failures.

    The second list has one message for each snapshot that could not be read.
    """
    steps: Bounds = {_place(t): (t.steps.start, t.steps.end) for t in traces}
    found = list(read_rows(list(snapshots), steps))
    rows = [row for row in found if isinstance(row, MemoryRow)]
    recorded = {(row.attempt, row.window, row.rank) for row in rows}
    for row in rows:
        row.device_bytes = next((size for t in traces if t.rank == row.rank and (size := _device_bytes(t))), None)
    rows += [_of_trace(t, t.rank) for t in traces if t.rank is not None and t.memory and _place(t) not in recorded]
    order = sorted(rows, key=lambda r: (r.attempt, -1 if r.window is None else r.window, r.rank))
    return order, [fault for fault in found if isinstance(fault, str)]


def _place(trace: RankTrace) -> tuple[int, int, int | None]:
    return trace.attempt, trace.window, trace.rank


def _of_trace(trace: RankTrace, rank: int) -> MemoryRow:
    device = max(trace.memory, key=lambda m: m.peak_allocated)
    return MemoryRow(
        attempt=trace.attempt,
        window=trace.window,
        rank=rank,
        file=None,
        peak_allocated_bytes=device.peak_allocated,
        peak_reserved_bytes=device.peak_reserved,
        end_allocated_bytes=device.end_allocated,
        end_reserved_bytes=device.end_reserved,
        segment_allocs=None,
        segment_frees=None,
        peak_per_step=device.step_peaks,
        device_bytes=_device_bytes(trace, device.device),
    )


def _device_bytes(trace: RankTrace, device: int | None = None) -> int | None:
    """Return the memory of the device with this number, or of any device if all have the same."""
    listed = trace.meta.raw.get("deviceProperties")
    known = [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    own = [d for d in known if d.get("id") == device] or known
    sizes = {size for d in own if type(size := d.get("totalGlobalMem")) is int and size > 0}
    return sizes.pop() if len(sizes) == 1 else None
