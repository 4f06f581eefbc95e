"""Late ranks: what to change on each, by its cause and by the operators and lines in its trace."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rankscope.causes.wording import cause_record
from rankscope.diagnose.advice.input_for_all import LOADER
from rankscope.diagnose.base.advice import Advice
from rankscope.diagnose.base.decision import StragglerDecision
from rankscope.diagnose.base.facts import advice_for
from rankscope.diagnose.base.late_sets import late_set
from rankscope.diagnose.base.rule import Case
from rankscope.diagnose.base.turns import take_turns
from rankscope.records.report import Action

__all__ = ["ADVICE"]


def _find(case: Case) -> list[Action]:
    """Return one action for ranks with the same advice, with their joint cost if it is known."""
    evidence, stragglers = case.evidence, case.stragglers
    if not stragglers:
        return []
    together, turns = late_set(evidence, stragglers), take_turns(stragglers, evidence)
    if together is None and not turns:
        return [_action([decision], case) for decision in stragglers]
    action = _action(stragglers, case)
    if together is not None:
        action.saves_ms, action.error_ms = together.cost_ms, together.error_ms
        action.text = together.advice or action.text
    return [action]


def _action(decisions: Sequence[StragglerDecision], case: Case) -> Action:
    first = decisions[0]
    return Action(
        code=f"mend_{first.cause}",
        text=advice_for(first.suspect, first.cause, case.evidence)[0],
        ranks=[d.suspect.rank for d in decisions],
        kind="replay",
        saves_ms=sum(d.suspect.cost_ms for d in decisions),
        error_ms=math.hypot(*(d.suspect.error_ms for d in decisions)),
        check=cause_record(first.cause).check,
    )


ADVICE = Advice(code="mend", find=_find, knobs={"mend_input_stall": LOADER, "mend_h2d_copy": ("pin_memory",)})
