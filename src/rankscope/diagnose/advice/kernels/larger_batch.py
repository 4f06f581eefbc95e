"""Work that each step does once, independent of the batch: more work per step reduces its share."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.advice import Advice, at_most, in_range
from rankscope.diagnose.base.memory import free_at_peak
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]

SHARDING = "copies for sharding"
LEAST_FREE = 0.1
"""Share of the device's memory. With less than this free at the peak a larger batch may not fit, because PyTorch's
numbers do not include the memory of NCCL and of the CUDA context."""
EXPOSED = 0.1
"""Share of the step in transfers that nothing hides, from which on the batch is too small for the number of ranks."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    allows = free_at_peak(evidence.memory, LEAST_FREE)
    if allows is None:
        return []
    batch = evidence.changes.batch
    if batch is not None and evidence.transfer_ms >= EXPOSED * evidence.whole_step_ms:
        text = (
            f"Use a larger batch on each rank, {allows}, or fewer ranks: two steps of {amount(evidence.whole_step_ms)} "
            f"become one of {amount(batch.twice_ms)} or more. It changes the optimization."
        )
        return in_range(evidence, "double_batch", text, batch, "tokens a second and device; the loss curve")
    text = f"Use a larger micro-batch, {allows}: copies of sharded parameters cost the same for each step."
    return at_most(evidence, "larger_batch", text, evidence.work_gains.get(SHARDING), "tokens a second")


ADVICE = Advice(
    code="larger_batch",
    find=_find,
    knobs={"double_batch": ("batch_size", "micro_batch_size", "per_device_train_batch_size")},
)
