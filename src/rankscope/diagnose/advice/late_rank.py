"""Late ranks: what to change on each, by its cause and by what its trace names."""

from __future__ import annotations

from rankscope.causes.wording import describe
from rankscope.diagnose.advice.base import Advice
from rankscope.diagnose.base.decision import StragglerDecision
from rankscope.diagnose.base.facts import advice_for
from rankscope.diagnose.base.rule import Case
from rankscope.records.evidence import Evidence
from rankscope.records.report import Action

__all__ = ["ADVICE"]


def _find(case: Case) -> list[Action]:
    return [_action(decision, case.evidence) for decision in case.stragglers]


def _action(decision: StragglerDecision, evidence: Evidence) -> Action:
    suspect, cause = decision.suspect, describe(decision.cause)
    first = advice_for(suspect, decision.cause, evidence)[0]
    return Action(
        code=f"mend_{decision.cause}",
        text=first,
        ranks=[suspect.rank],
        kind="replay",
        saves_ms=suspect.cost_ms,
        error_ms=suspect.error_ms,
        check=cause.check,
    )


ADVICE = Advice(code="mend", find=_find)
