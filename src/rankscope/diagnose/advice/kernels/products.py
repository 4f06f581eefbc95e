"""Matrix products whose sizes keep them from full speed."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, in_range
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    product = evidence.changes.product
    if product is None:
        return []
    pad = " and ".join(f"{size} to {aligned}" for size, aligned in product.pad.items())
    text = (
        f"Pad {pad}, a multiple of 8 (of a vocabulary: embedding and head): {product.operator} of {product.sizes} runs "
        f"at {product.tflops:.0f} TFLOP/s, like ones at {product.aligned_tflops:.0f}."
    )
    return in_range(evidence, "pad_products", text, product, "TFLOP/s of that product")


ADVICE = Advice(code="pad_products", find=_find, knobs={"pad_products": ("vocab_size", "padded_vocab_size")})
