"""Ranks that cost the job step time."""

from __future__ import annotations

from rankscope.causes.wording import amount, cause_record, hours, parts, step_time
from rankscope.diagnose.base.decision import StragglerDecision
from rankscope.diagnose.base.facts import advice_for
from rankscope.diagnose.base.reasons import reasons
from rankscope.diagnose.base.rule import Case, Rule
from rankscope.listing import named_ranks
from rankscope.records.report import Finding

__all__ = ["RULE"]


def _find(case: Case) -> list[Finding]:
    return [_straggler(decision, case) for decision in case.stragglers]


def _straggler(decision: StragglerDecision, case: Case) -> Finding:
    suspect, evidence, cause = decision.suspect, case.evidence, cause_record(decision.cause)
    step = (evidence.whole_step_ms if decision.once else evidence.step_ms) or 0.0
    saved = f"{amount(suspect.cost_ms)} (± {amount(suspect.error_ms)})"
    also = f", with {named_ranks(suspect.beside)} fixed before" if suspect.beside else ""
    then = "" if suspect.beside else f": {step_time(step)} become {amount(max(step - suspect.cost_ms, 0.0))}"
    lines = [
        f"Without rank {suspect.rank}'s extra time each step would be {saved} shorter{also}, by replay{then}.",
        f"That is {100 * suspect.cost_ms / step:.0f} % of the step"
        + (hours(suspect.cost_ms, step, len(evidence.ranks)) if evidence.device else "")
        + ".",
        f"By step: {', '.join(amount(g) for g in suspect.gains_ms[:12])}{' ...' if suspect.gains_ms[12:] else ''}.",
        (
            f"Where it is late it does {amount(suspect.excess_ms)} per step more than its peers; explained: "
            f"{parts(suspect.explained)}."
        ),
    ]
    if suspect.caused_wait_ms > 0:
        lines.append(
            f"Other ranks' collectives wait {amount(suspect.caused_wait_ms)} per step for it (waiting is not cost)."
        )
    lines += reasons(case, suspect.rank, decision.cause)
    return Finding(
        id=f"{decision.cause}-rank-{suspect.rank}",
        kind=decision.cause,
        ranks=[suspect.rank],
        cost_ms_per_step=suspect.cost_ms,
        confidence=decision.confidence,
        title=f"Rank {suspect.rank} is late: {cause.noun}" + (", once" if decision.once else ""),
        evidence=lines,
        advice=advice_for(suspect, decision.cause, evidence),
    )


RULE = Rule(kind="straggler", find=_find)
