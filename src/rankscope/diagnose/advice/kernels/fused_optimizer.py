"""Run the optimizer in one kernel instead of several."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most, device_gain, unrecorded
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]

OPTIMIZER = "optimizer"


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if "fused_optimizer" in evidence.uses or "foreach_optimizer" not in evidence.uses:
        return []
    group = next((g for g in evidence.efficiency.groups if g.name == OPTIMIZER), None) if evidence.efficiency else None
    kernels = f" instead of {group.kernels_per_step:.0f}" if group is not None else ""
    text = f"Give the optimizer fused=True: it updates in a few kernels{kernels}."
    gain = device_gain(evidence, OPTIMIZER)
    if group is not None and evidence.launches and not evidence.stacks:  # stacks distort the host's time
        # If the host is the bottleneck, each removed launch saves host time: at most that of the optimizer's step.
        host = (evidence.own_host_gain_ms or 0.0) * min(group.kernels_per_step / evidence.launches, 1.0)
        own = min(evidence.optimizer_ms * unrecorded(evidence), evidence.own_host_gain_ms or 0.0)
        gain = max(gain, host, own)
    return at_most(evidence, "fused_optimizer", text, gain, "optimizer kernels a step")


ADVICE = Advice(code="fused_optimizer", find=_find, knobs={"fused_optimizer": ("fused", "fused_optimizer")})
