"""Copies that sharding makes once per step, independent of the batch: more work per step reduces their share."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most
from rankscope.diagnose.base.memory import free_at_peak
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]

SHARDING = "copies for sharding"
LEAST_FREE = 0.1
"""Share of the device's memory. With less than this free at the peak a larger batch may not fit, because PyTorch's
numbers do not include the memory of NCCL and of the CUDA context."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    allows = free_at_peak(evidence.memory, LEAST_FREE)
    if allows is None:
        return []
    text = f"Use a larger micro-batch, {allows}: copies of sharded parameters cost the same for each step."
    return at_most(evidence, "larger_batch", text, evidence.work_gains.get(SHARDING), "tokens a second")


ADVICE = Advice(code="larger_batch", find=_find)
