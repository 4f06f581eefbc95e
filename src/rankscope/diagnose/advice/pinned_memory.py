"""Advice for copies from pageable memory on all ranks, or on the only rank."""

from __future__ import annotations

from rankscope.causes import h2d_copy
from rankscope.diagnose.base.advice import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]


def _find(case: Case) -> list[Action]:
    cause = h2d_copy.CAUSE
    if any(d.cause == cause.name for d in case.stragglers):
        return []
    text = (
        "Copy to the device from pinned memory, which no host waits for: pin_memory=True in the DataLoader and "
        ".to(device, non_blocking=True)."
    )
    return at_most(case.evidence, "pin_memory", text, case.evidence.pageable_ms, cause.check)


ADVICE = Advice(code="pin_memory", find=_find, knobs={"pin_memory": ("pin_memory", "non_blocking")})
