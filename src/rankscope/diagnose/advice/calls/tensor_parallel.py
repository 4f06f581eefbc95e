"""Tensor and context parallel groups: where they are, how large they are, and how the work is divided among them."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most, hidden_ms, in_range
from rankscope.diagnose.base.facts import by_a_mask
from rankscope.diagnose.base.memory import fullest
from rankscope.diagnose.base.rule import Case
from rankscope.listing import some_ranks
from rankscope.records.changes import TensorParallel
from rankscope.records.evidence import Evidence
from rankscope.records.report import Action

__all__ = ["ADVICE", "CONTEXT"]

POOR = 50.0
"""Per cent of the peak. Products that are large enough for a device exceed it."""
MATRIX = "matrix products"


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    tensor = evidence.changes.tensor
    if tensor is None or not evidence.device:
        return []
    if tensor.hosts > 1:
        return _one_host(evidence, tensor)
    gain = hidden_ms(evidence, tensor.high_ms)
    hide = (
        "Hide tensor parallel calls: async TP (torch.compile with torch._inductor.config._micro_pipeline_tp = True), "
        "in Megatron --tp-comm-overlap."
    )
    return [
        *at_most(evidence, "overlap_tensor_parallel", hide, gain, "exposed transfer of these groups"),
        *_halve(evidence, tensor),
    ]


def _one_host(evidence: Evidence, tensor: TensorParallel) -> list[Action]:
    text = (
        f"Keep tensor parallel groups within a host (tp as the last dimension of the mesh): that of ranks "
        f"{some_ranks(tensor.ranks)} extends over {tensor.hosts}."
    )
    check = "GB/s of these groups"
    if tensor.within is not None:
        return in_range(evidence, "tensor_parallel_in_host", text, tensor.within, check)
    return at_most(evidence, "tensor_parallel_in_host", text, tensor.high_ms, check)


def _halve(evidence: Evidence, tensor: TensorParallel) -> list[Action]:
    """Advise on smaller groups if products are too small to be fast, and twice the parameters fit."""
    known, row = evidence.efficiency, fullest(evidence.memory)
    products = next((g for g in known.groups if g.name == MATRIX), None) if known is not None else None
    if products is None or products.peak_pct is None or products.peak_pct >= POOR:
        return []
    if row is not None and row.device_bytes and 2 * row.peak_reserved_bytes > row.device_bytes:
        return []
    smaller = (
        f"Halve tensor parallel groups to {tensor.size // 2}" if tensor.size > 2 else "Do without tensor parallelism"
    )
    text = (
        f"{smaller}, if twice the parameters fit: products run at {products.peak_pct:.0f} % of the peak. What larger "
        "ones gain, one trace cannot tell; this is of the calls."
    )
    return at_most(evidence, "halve_tensor_parallel", text, tensor.halved_ms, "TFLOP/s of products; peak memory")


ADVICE = Advice(
    code="tensor_parallel",
    find=_find,
    knobs={"halve_tensor_parallel": ("tp", "tp_size", "tensor_parallel_size", "tensor_model_parallel_size")},
)


def _find_context(case: Case) -> list[Action]:
    """Advise to shard the sequence so that all ranks see as much of a causal mask."""
    evidence = case.evidence
    uneven = evidence.changes.context
    if uneven is None or any(d.suspect.rank in uneven.late for d in case.stragglers):
        return []  # of a late rank it is the advice already
    check = "attention time of these ranks within 5 %"
    return in_range(evidence, "even_context", by_a_mask(uneven), uneven, check, uneven.late)


CONTEXT = Advice(code="even_context", find=_find_context, knobs={"even_context": ("enable_load_balance",)})
