"""Device memory: the highest peak, and the growth of the peak per step."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.compare.sides.noise import BETWEEN
from rankscope.compare.sides.side import Side
from rankscope.records.diff import DiffRow
from rankscope.records.rows import MemoryRow

__all__ = ["memory_rows"]

LEAK_BYTES = 1 << 20
"""A peak that grows by less than a block of the allocator per step is not a leak that fills a device in a day."""


def memory_rows(before: Side, after: Side) -> list[DiffRow]:
    """Return the rows that both runs recorded."""
    found = [
        _row("memory peak", before, after, lambda row: float(row.peak_allocated_bytes)),
        _row("memory reserved", before, after, lambda row: float(row.peak_reserved_bytes)),
        _row("memory growth a step", before, after, lambda row: row.growth_bytes_per_step),
    ]
    return [row for row in found if row is not None]


def _row(name: str, before: Side, after: Side, value: Callable[[MemoryRow], float | None]) -> DiffRow | None:
    ours, theirs = (_highest(side, value) for side in (before, after))
    if ours is None or theirs is None:
        return None
    (one, _), (other, rank) = ours, theirs
    noise = LEAK_BYTES if "growth" in name else BETWEEN["memory"] * max(one, other)
    return DiffRow(
        kind="memory",
        name=name,
        unit="bytes",
        before=one,
        after=other,
        change=other - one,
        noise=noise,
        told=abs(other - one) > noise,
        ranks=[rank],
    )


def _highest(side: Side, value: Callable[[MemoryRow], float | None]) -> tuple[float, int] | None:
    found = [(n, row.rank) for row in side.report.memory if row.window is not None and (n := value(row)) is not None]
    return max(found, default=None)
