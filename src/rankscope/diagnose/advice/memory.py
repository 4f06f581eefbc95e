"""Device memory: what all ranks allocate and free in every step can be kept, and what hardly suffices be spared."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most
from rankscope.diagnose.base.memory import free_at_peak, room, size
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE", "FULL", "ROOM"]

FREE = 0.2
"""Share of the device's memory that has to be free at the peak for activations to be kept."""
NEARLY = 0.95
"""Share of the device's memory in tensors at the peak. CUDA's context and NCCL take some of what is left."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if not evidence.device or any(d.cause == "allocator" for d in case.stragglers):
        return []
    text = (
        "Keep device memory: take torch.cuda.empty_cache() out of the step, and set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, so that what is free can be joined."
    )
    check = "no cudaMalloc and no cudaFree after the first steps"
    return at_most(evidence, "keep_memory", text, evidence.allocator_ms, check)


def _find_full(case: Case) -> list[Action]:
    """Advise on the fullest device; one that has run out of memory has a finding, with this advice."""
    rows = [row for row in case.evidence.memory if row.device_bytes]
    row = max(rows, key=lambda r: r.peak_allocated_bytes / (r.device_bytes or 1), default=None)
    if row is None or row.window is None or row.peak_allocated_bytes < NEARLY * (row.device_bytes or 0):
        return []
    holds = f"{size(row.peak_allocated_bytes)} of {size(row.device_bytes or 0)}"
    text = f"Make room: tensors take {holds} of rank {row.rank}'s memory at the peak. {room(row)}"
    return [Action(code="make_room", text=text, ranks=[row.rank], check="peak allocated, and the step")]


def _find_room(case: Case) -> list[Action]:
    """Advise to compute less again where memory is free."""
    allows = free_at_peak(case.evidence.memory, FREE)
    if allows is None:
        return []
    text = f"Checkpoint fewer activations, {allows}: the backward computes forward operators again."
    return at_most(case.evidence, "checkpoint_less", text, case.evidence.again_ms, "forward operators in the backward")


FULL = Advice(code="make_room", find=_find_full)
ROOM = Advice(
    code="checkpoint_less", find=_find_room, knobs={"checkpoint_less": ("activation_checkpointing", "checkpoint")}
)
ADVICE = Advice(code="keep_memory", find=_find)
