"""Fuse element-wise kernels, or reduce launches: ``torch.compile``, and CUDA graphs if it is in use already."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.advice import LEAST, Advice, at_most, device_gain
from rankscope.diagnose.base.rule import Case
from rankscope.records.evidence import Evidence
from rankscope.records.report import Action

__all__ = ["ADVICE"]

MEMORY_BOUND = "element-wise, norms and losses"
NAMED = 3
"""Operators of the costliest chain that are named."""
LAUNCHES = 500
"""Number of kernels per step from which on the number of launches is what slows a host."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if not evidence.device or evidence.stacks:  # stacks distort the host's time
        return []
    fused = device_gain(evidence, MEMORY_BOUND)
    host = evidence.own_host_gain_ms or 0.0
    step = evidence.step_ms or 0.0
    if host >= max(fused, LEAST * step):
        return _launch_less(evidence, host)
    if "compile" in evidence.uses:
        return []
    text = "torch.compile fuses norms, activations and additions: fewer reads and writes of device memory."
    return at_most(evidence, "compile", text + _most(evidence), fused, "element-wise kernels a step")


def _most(evidence: Evidence) -> str:
    chain = evidence.changes.chain
    if chain is None or chain.ms < LEAST * (evidence.step_ms or 0.0):
        return ""
    names = ", ".join(name.removeprefix("aten::") for name in chain.operators[:NAMED])
    names += ", ..." if len(chain.operators) > NAMED else ""
    return f" Costliest chain: {names} ({chain.count:.0f} a step, {amount(chain.ms)})."


def _launch_less(evidence: Evidence, gain: float) -> list[Action]:
    if "cuda_graphs" in evidence.uses:
        return []
    check = f"launches a step (now {evidence.launches:,.0f}), devices idle for the host"
    if "compile" in evidence.uses:
        text = "Look for graph breaks (TORCH_LOGS=graph_breaks), then use CUDA graphs (mode='reduce-overhead')."
        return at_most(evidence, "cuda_graphs", text, gain, check)
    many = f"{evidence.launches:,.0f} kernels a step" if evidence.launches >= LAUNCHES else "the host's work"
    text = f"torch.compile the model: it cuts {many}; then CUDA graphs (mode='reduce-overhead')."
    return at_most(evidence, "compile", text, gain, check)


ADVICE = Advice(
    code="compile", find=_find, knobs={"compile": ("compile", "torch_compile"), "cuda_graphs": ("cuda_graphs",)}
)
