"""Matrix products in kernels without tensor cores."""

from __future__ import annotations

from rankscope.diagnose.advice.base import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]


def _find(case: Case) -> list[Action]:
    known = case.evidence.efficiency
    if known is None or not known.plain_ms:
        return []
    text = (
        "Let matrix products use tensor cores: torch.set_float32_matmul_precision('high'), or bf16 autocast. "
        "Both change numerics."
    )
    return at_most(case.evidence, "tensor_cores", text, known.plain_ms, "names of the kernels; the loss curve")


ADVICE = Advice(
    code="tensor_cores", find=_find, knobs={"tensor_cores": ("tf32", "allow_tf32", "float32_matmul_precision")}
)
