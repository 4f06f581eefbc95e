"""Device memory in words: its size, the lines that hold it, and the fullest device."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.records.rows import MemoryFrame, MemoryRow

__all__ = ["free_at_peak", "fullest", "held", "room", "size"]

MOST_LINES = 3
LARGE = 0.2
"""Share of the peak from which on a holder is worth a change of its own."""
_LESS = {
    "optimizer states": (
        "Shard the states of the optimizer, {size} at the peak: ZeroRedundancyOptimizer or fully_shard; or keep them "
        "in 8 bits, which changes numerics."
    ),
    "logits and loss": (
        "Compute the loss in pieces, or by a fused cross-entropy: logits and loss hold {size} at the peak; or shard "
        "the vocabulary."
    ),
}
"""What is held -> how to hold less of it."""


def size(count: int) -> str:
    """Return bytes with their unit: ``12.0 GiB``, ``512.0 MiB``."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def held(row: MemoryRow) -> list[str]:
    """Return a sentence on the line that holds most at the peak; empty without a snapshot."""
    if not row.top:
        return []
    return [
        "Most at the peak was held by: "
        + "; ".join(f"{frame.frame} {size(frame.bytes)}{_of(frame)}" for frame in row.top[:MOST_LINES])
        + "."
    ]


def _of(frame: MemoryFrame) -> str:
    return f" ({frame.what})" if frame.what else ""


def room(row: MemoryRow) -> str:
    """Return what would hold less at the peak, by what holds most there, in a sentence."""
    sums = {what: sum(frame.bytes for frame in row.top if frame.what == what) for what in _LESS}
    most = max(sums, key=lambda what: sums[what])
    if sums[most] < LARGE * row.peak_allocated_bytes or not sums[most]:
        return (
            "Checkpoint the activations of some blocks (torch.utils.checkpoint), which costs their forward once more; "
            "offload last."
        )
    return _LESS[most].format(size=size(sums[most]))


def fullest(rows: Sequence[MemoryRow]) -> MemoryRow | None:
    """Return the row with the largest share of its device reserved; None if no device's size is known."""
    known = [row for row in rows if row.device_bytes]
    return max(known, key=lambda row: row.peak_reserved_bytes / (row.device_bytes or 1), default=None)


def free_at_peak(rows: Sequence[MemoryRow], least: float) -> str | None:
    """Return in words what the fullest device has free at the peak; None if that is less than this share of it."""
    row = fullest(rows)
    if row is None or not row.device_bytes:
        return "if memory allows"
    free = row.device_bytes - row.peak_reserved_bytes
    return None if free < least * row.device_bytes else f"{size(free)} of {size(row.device_bytes)} are free at the peak"
