"""Kernels that NCCL's kernels slow down."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    beside = evidence.changes.beside
    if beside is None:
        return []
    most = f" (most: {beside.operator})" if beside.operator else ""
    others = "; for FSDP's all-gathers set_symm_mem_for_comm" if "fsdp2" in evidence.uses else ""
    text = (
        f"Leave compute more of the device beside NCCL: kernels{most} take {beside.ratio:.1f} times as long there. "
        f"NCCL_MAX_CTAS=8, which lengthens transfers{others}."
    )
    check = "length of kernels beside collectives; bus bandwidth"
    return at_most(evidence, "fewer_ctas", text, beside.high_ms, check)


ADVICE = Advice(code="fewer_ctas", find=_find, knobs={"fewer_ctas": ("NCCL_MAX_CTAS",)})
