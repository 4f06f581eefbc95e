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
    takes = f"takes {amount(plain.ms)} a step in {plain.kernels:.0f} kernels that write scores to memory"
    if plain.fallback:
        text = (
            f"Let scaled_dot_product_attention use a fused kernel: it {takes}. Under "
            "sdpa_kernel(SDPBackend.FLASH_ATTENTION) it says why it cannot (type, head size, mask); "
            "for other masks use flex_attention."
        )
    else:
        text = (
            f"Use scaled_dot_product_attention, or flex_attention for other masks, in place of softmax and products: "
            f"attention {takes}."
        )
    return in_range(evidence, "fuse_attention", text, plain, "no softmax kernel in attention; the loss curve")


ADVICE = Advice(
    code="fuse_attention", find=_find, knobs={"fuse_attention": ("attn_implementation", "sdpa", "flash_attention")}
)
