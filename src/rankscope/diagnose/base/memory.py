"""Device memory in words: its size, the lines that hold it, and the fullest device."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.records.rows import MemoryRow

__all__ = ["fullest", "held", "size"]

MOST_LINES = 3


def size(count: int) -> str:
    """Return bytes with their unit: ``12.0 GiB``, ``512.0 MiB``."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def held(row: MemoryRow) -> list[str]:
    """Return a sentence on the line that holds most at the peak; empty without a snapshot."""
    if not row.top:
        return []
    return [
        "Most at the peak was held by: "
        + "; ".join(f"{frame.frame} {size(frame.bytes)}" for frame in row.top[:MOST_LINES])
        + "."
    ]


def fullest(rows: Sequence[MemoryRow]) -> MemoryRow | None:
    """Return the row with the largest share of its device reserved; None if no device's size is known."""
    known = [row for row in rows if row.device_bytes]
    return max(known, key=lambda row: row.peak_reserved_bytes / (row.device_bytes or 1), default=None)
