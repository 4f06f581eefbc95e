"""Gradients that are reduced after each micro-batch of a step."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if evidence.repeats < 2:
        return []
    call = "set_requires_gradient_sync(False) (FSDP2)" if "fsdp2" in evidence.uses else "no_sync() (DDP)"
    text = f"Reduce gradients once a step, not {evidence.repeats} times: all but the last backward under {call}."
    gain = evidence.repeat_ms if evidence.overlap_gain_ms is None else min(evidence.repeat_ms, evidence.overlap_gain_ms)
    # Ranks meet in each of these calls: waiting for each other goes with them, and so does what DDP does for them.
    gain += evidence.waiting_ms * (evidence.repeats - 1) / evidence.repeats + evidence.repeat_work_ms
    return at_most(evidence, "reduce_once", text, gain, "reductions a step")


ADVICE = Advice(code="reduce_once", find=_find, knobs={"reduce_once": ("no_sync",)})
