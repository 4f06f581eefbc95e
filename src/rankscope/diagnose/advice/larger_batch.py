"""Copies that sharding makes once a step, whatever the batch: more work a step thins them out."""

from __future__ import annotations

from rankscope.diagnose.advice.base import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]

SHARDING = "copies for sharding"


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    text = "Use a larger micro-batch, if memory allows: copies of sharded parameters cost the same for each step."
    return at_most(evidence, "larger_batch", text, evidence.work_gains.get(SHARDING), "tokens a second")


ADVICE = Advice(code="larger_batch", find=_find)
