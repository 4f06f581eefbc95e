"""Matrix products in kernels without tensor cores."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]

PLAIN, ELEMENTWISE = "products and attention in 32 bits", "element-wise, norms and losses"
HALVED = 0.5
"""Share of the element-wise kernels' time that bf16 saves: they move half of the bytes."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    known = evidence.efficiency
    if known is None or not known.plain_ms:
        return []
    text = (
        "Use tensor cores: torch.set_float32_matmul_precision('high') for products, or bf16 autocast. Both change "
        "numerics."
    )
    gains = evidence.work_gains
    gain = max(known.plain_ms, gains.get(PLAIN, 0.0)) + HALVED * gains.get(ELEMENTWISE, 0.0)
    return at_most(evidence, "tensor_cores", text, gain, "names of the kernels; the loss curve")


ADVICE = Advice(
    code="tensor_cores", find=_find, knobs={"tensor_cores": ("tf32", "allow_tf32", "float32_matmul_precision")}
)
