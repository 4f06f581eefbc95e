"""No single cause explains half of the extra time."""

from __future__ import annotations

from rankscope.causes.base import GARBAGE_COLLECTION, Cause

__all__ = ["CAUSE"]

CAUSE = Cause(
    name="unexplained",
    phrase="no single cause explains most of it",
    noun="no single cause",
    advice=("Record again with stacks (with_stack) and look at the segment in the merged timeline.",),
    first_try="record again with stacks (`-S capture=full`)",
    needs=(),
    planted_by="",
    noisy=True,
    behind=("gpu_throttled", "pcie_degraded", "cpu_throttled", GARBAGE_COLLECTION),
)
