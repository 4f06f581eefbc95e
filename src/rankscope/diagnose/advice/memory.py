"""Device memory that all ranks allocate and free in every step: PyTorch's allocator can keep it."""

from __future__ import annotations

from rankscope.diagnose.advice.base import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]


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


ADVICE = Advice(code="keep_memory", find=_find)
