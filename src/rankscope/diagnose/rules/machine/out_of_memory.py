"""Ranks whose allocator gave up. Memory that is reserved in pieces is distinguished from too much in use."""

from __future__ import annotations

from rankscope.diagnose.base.rule import Case, Rule
from rankscope.records.report import Finding
from rankscope.records.rows import MemoryRow

__all__ = ["FRAGMENTED", "RULE"]

_MOST_LINES = 3
FRAGMENTED = (
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, so that what is free can be joined.",
    "Keep shapes alike: each new size of a batch leaves pieces behind.",
)
"""What to do instead where enough memory was reserved, but in pieces."""


def _find(case: Case) -> list[Finding]:
    return [_finding(row) for row in case.evidence.memory if row.window is None]


def _finding(row: MemoryRow) -> Finding:
    asked, free = row.requested_bytes, row.fragmentation_bytes
    lines = [f"{_size(row.end_allocated_bytes)} were in use, {_size(free)} more reserved by PyTorch but not in use."]
    if asked is not None:
        lines.insert(0, f"An allocation of {_size(asked)} failed.")
    if row.top:
        held = "; ".join(f"{frame.frame} {_size(frame.bytes)}" for frame in row.top[:_MOST_LINES])
        lines.append(f"Most at the peak was held by: {held}.")
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
        advice=list(FRAGMENTED) if pieces else [],
    )


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


RULE = Rule(
    kind="out_of_memory",
    noun="out of device memory",
    advice=(
        "Hold less at a time: activation checkpointing, smaller micro-batches, sharding (fully_shard).",
        "Look for tensors kept over steps: losses that are summed up without .item(), lists of outputs.",
    ),
    find=_find,
)
