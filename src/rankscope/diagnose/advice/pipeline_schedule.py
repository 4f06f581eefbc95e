"""Stages of a pipeline: balance them, and give the schedule more to overlap."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.advice.base import Advice
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE", "CODES"]

CODES = ("even_stages", "more_micro_batches")
"""Codes of these actions. In a pipeline they come first, though their gain is unknown without the schedule."""

UNEVEN = 1.05
"""Ratio of the longest stage's compute to the shortest one's from which on moving layers is worthwhile."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if not evidence.pipeline:
        return []
    found = []
    if len(evidence.compute_ms) > 1:
        longest = max(evidence.compute_ms, key=lambda r: evidence.compute_ms[r])
        shortest = min(evidence.compute_ms, key=lambda r: evidence.compute_ms[r])
        most, least = evidence.compute_ms[longest], evidence.compute_ms[shortest]
        if most > UNEVEN * least > 0:
            text = (
                f"Move layers from rank {longest}, which computes {amount(most)} a step, to rank {shortest} "
                f"({amount(least)})."
            )
            found.append(Action(code="even_stages", text=text, ranks=[longest], check="compute per stage within 5 %"))
    text = "Use more micro-batches per step, or an interleaved or zero-bubble schedule (torch.distributed.pipelining)."
    return [*found, Action(code="more_micro_batches", text=text, ranks=evidence.ranks, check="idle share of the step")]


ADVICE = Advice(code="pipeline_schedule", find=_find)
