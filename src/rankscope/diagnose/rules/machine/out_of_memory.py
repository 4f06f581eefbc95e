"""Ranks with an out-of-memory error. Fragmentation is distinguished from too much memory in use."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diagnose.base.memory import held, room, size
from rankscope.diagnose.base.rule import Case, Rule
from rankscope.records.report import Finding
from rankscope.records.rows import MemoryRow

__all__ = ["FRAGMENTED", "RULE"]

FRAGMENTED = (
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, so that what is free can be joined.",
    "Keep shapes alike: each new size of a batch leaves pieces behind.",
)
"""Advice if enough memory was reserved, but in pieces."""


def _find(case: Case) -> list[Finding]:
    return [_finding(row, case.evidence.memory) for row in case.evidence.memory if row.window is None]


def _finding(row: MemoryRow, all_rows: Sequence[MemoryRow]) -> Finding:
    asked, free = row.requested_bytes, row.fragmentation_bytes
    of = f" of {size(row.device_bytes)}" if row.device_bytes else ""
    lines = [f"{size(row.end_allocated_bytes)}{of} were in use, {size(free)} more reserved by PyTorch but not in use."]
    if asked is not None:
        lines.insert(0, f"An allocation of {size(asked)} failed.")
    lines += [*held(row), *_others(row, all_rows)]
    lines.append(f"{row.file} opens in https://pytorch.org/memory_viz.")
    pieces = asked is not None and free >= asked
    return Finding(
        id=f"out_of_memory-rank-{row.rank}",
        kind="out_of_memory",
        ranks=[row.rank],
        cost_ms_per_step=None,
        confidence="high",
        title=f"Rank {row.rank} ran out of device memory" + (", with enough in pieces" if pieces else ""),
        evidence=lines,
        advice=list(FRAGMENTED) if pieces else [room(row)] if any(frame.what for frame in row.top) else [],
    )


def _others(row: MemoryRow, all_rows: Sequence[MemoryRow]) -> list[str]:
    """Return whether the other ranks hold as much, by the peaks of their windows."""
    peaks = sorted(r.peak_allocated_bytes for r in all_rows if r.window is not None and r.rank != row.rank)
    if not peaks:
        return []
    spread = size(peaks[0]) if size(peaks[0]) == size(peaks[-1]) else f"{size(peaks[0])} to {size(peaks[-1])}"
    return [f"The other ranks' peaks, where they were recorded: {spread}."]


RULE = Rule(
    kind="out_of_memory",
    noun="out of device memory",
    advice=(
        "Hold less at a time: activation checkpointing, smaller micro-batches, sharding (fully_shard).",
        "Look for tensors kept over steps: losses that are summed up without .item(), lists of outputs.",
    ),
    find=_find,
)
