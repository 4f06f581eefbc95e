"""Attention in separate kernels, which write the scores of all pairs of positions to memory."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.advice import Advice, in_range
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    plain = evidence.changes.attention
    if plain is None:
        return []
    takes = f"{amount(plain.ms)} a step in {plain.kernels:.0f} kernels"
    if plain.fallback:
        text = (
            f"Let scaled_dot_product_attention run fused ({takes}): sdpa_kernel(SDPBackend.FLASH_ATTENTION) says why "
            "it does not; flex_attention for masks."
        )
    else:
        text = (
            "Use scaled_dot_product_attention, or flex_attention for other masks: attention writes its scores to "
            f"memory, {takes}."
        )
    return in_range(evidence, "fuse_attention", text, plain, "no softmax kernel in attention; the loss curve")


ADVICE = Advice(
    code="fuse_attention", find=_find, knobs={"fuse_attention": ("attn_implementation", "sdpa", "flash_attention")}
)
