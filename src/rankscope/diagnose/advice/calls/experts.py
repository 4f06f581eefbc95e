"""Expert parallel jobs: equal work for all experts, and all-to-alls beside compute."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most, hidden_ms
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    experts = evidence.changes.experts
    if experts is None or not evidence.device:
        return []
    hide = (
        "Hide the experts' all-to-alls behind compute (in Megatron --overlap-moe-expert-parallel-comm, "
        "--delay-wgrad-compute), or prefer experts of the same host."
    )
    even = (
        "Balance the experts by a loss, a bias of the router or a capacity: ranks compute unequally long between "
        "all-to-alls. A busy expert is no slow device."
    )
    check = "compute of the ranks within 20 %; the loss curve"
    return [
        *at_most(evidence, "balance_experts", even, experts.balanced_ms, check),
        *at_most(evidence, "overlap_experts", hide, hidden_ms(evidence, experts.high_ms), "exposed all-to-all"),
    ]


ADVICE = Advice(code="experts", find=_find, knobs={"balance_experts": ("moe_aux_loss_coeff", "router_aux_loss_coef")})
