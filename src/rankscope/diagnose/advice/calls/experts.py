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
        "Hide the all-to-alls of experts behind compute of another micro-batch or of weight gradients (in Megatron "
        "--overlap-moe-expert-parallel-comm, --delay-wgrad-compute), or send less: experts of one host first."
    )
    even = (
        "Balance the experts: a balancing loss or bias of the router, or a capacity for each. Ranks compute unequally "
        "long between all-to-alls, and a busy expert is no slow device."
    )
    return [
        *at_most(
            evidence, "balance_experts", even, experts.balanced_ms, "compute of ranks within 20 %; the loss curve"
        ),
        *at_most(evidence, "overlap_experts", hide, hidden_ms(evidence, experts.high_ms), "exposed all-to-all"),
    ]


ADVICE = Advice(code="experts", find=_find, knobs={"balance_experts": ("moe_aux_loss_coeff", "router_aux_loss_coef")})
