"""One operator that is called hundreds of times per step in a job that waits for its hosts."""

from __future__ import annotations

from rankscope.diagnose.base.advice import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.records.report import Action

__all__ = ["ADVICE"]

OFTEN = 500
"""Calls per step: the layers of a model call an operator some hundred times, a loop over elements thousands of
times."""
MOST_OF_THEM = 0.5
"""Share of all launches."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if not evidence.often or not evidence.device or not evidence.launches or evidence.stacks:
        return []
    name, calls = evidence.often, evidence.often_calls
    if calls < OFTEN or calls < MOST_OF_THEM * evidence.launches or name.startswith("aten::_foreach"):
        return []
    gain = evidence.own_host_gain_ms
    part = None if gain is None else gain * min(calls / evidence.launches, 1.0)
    text = f"Replace the {calls:,.0f} calls of {name} a step by a few large ones: stack, torch._foreach_*, vectorise"
    text += "." if "compile" in evidence.uses else "; torch.compile may do the same."
    return at_most(evidence, "vectorise", text, part, f"calls of {name} a step")


ADVICE = Advice(code="vectorise", find=_find)
