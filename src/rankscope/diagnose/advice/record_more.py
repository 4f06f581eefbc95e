"""Data that was not recorded and would decide a question; never data that exists already."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]

BUSY = 80.0
"""Per cent of the step in which devices compute, from which on their efficiency is the open question."""
HOST_SHARE = 10.0
"""Per cent of the step in which devices wait for their hosts, from which on the hosts' work matters."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if not evidence.device or case.stragglers:
        return []
    if evidence.stacks and 100.0 * evidence.host_ms >= HOST_SHARE * evidence.whole_step_ms:
        text = "Record again without Python's stacks (-S capture=light), which make hosts several times slower."
        return [Action(code="record_without_stacks", text=text, ranks=evidence.ranks, check="idle for the host")]
    if evidence.compute_pct < BUSY or evidence.shapes:
        return []
    text = "Record shapes (-S capture=shapes, record_shapes=True): they show how close to its peak a device computes."
    return [Action(code="record_shapes", text=text, ranks=evidence.ranks, check="TFLOP/s in the report")]


ADVICE = Advice(code="record_more", find=_find)
