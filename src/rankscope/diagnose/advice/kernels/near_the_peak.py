"""Devices near their peak: only less work, or more devices, makes the step shorter."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.advice import Advice
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]

MATRIX = "matrix products"
NEAR = 70.0
"""Per cent of the peak. Large products of vendor libraries reach 70 to 80 % of the data sheet's number."""
MOSTLY = 0.7
"""Share of the step in such kernels."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    known = evidence.efficiency
    group = next((g for g in known.groups if g.name == MATRIX), None) if known is not None else None
    if group is None or (group.peak_pct or 0.0) < NEAR or group.ms_per_step < MOSTLY * (evidence.step_ms or 0.0):
        return []
    text = (
        f"This is close to what the hardware gives: matrix products take {amount(group.ms_per_step)} at "
        f"{group.peak_pct:.0f} % of its peak. What is left: fp8 (changes numerics), a smaller model, more devices."
    )
    return [Action(code="near_the_peak", text=text, ranks=evidence.ranks, check="the loss curve")]


ADVICE = Advice(code="near_the_peak", find=_find)
