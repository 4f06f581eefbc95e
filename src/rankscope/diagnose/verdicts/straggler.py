"""One rank, several, or a whole host delay the job."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rankscope.causes.table import DEVICE_CAUSES
from rankscope.causes.wording import (
    amount,
    cause_record,
    hours,
    parts,
    sentence_of,
    share,
    step_time,
    told_apart,
    with_error,
)
from rankscope.diagnose.base.advice import in_words, mends
from rankscope.diagnose.base.facts import advice_for, facts_of
from rankscope.diagnose.base.late_sets import LateSet, late_set
from rankscope.diagnose.base.reasons import reasons
from rankscope.diagnose.base.rule import Case
from rankscope.diagnose.base.turns import take_turns
from rankscope.diagnose.verdicts.confidence import how_sure, step_log_line
from rankscope.diagnose.verdicts.step import Step, job_step
from rankscope.listing import named_ranks
from rankscope.records.evidence import Evidence, Suspect
from rankscope.records.report import Action, Verdict
from rankscope.statistics.thresholds import LOSES

__all__ = ["straggler"]

MOST_NAMED = 4


def straggler(case: Case, actions: Sequence[Action]) -> Verdict:
    """Return the verdict on the stragglers, in order of cost, the largest first."""
    evidence, first = case.evidence, case.stragglers[0]
    suspect = first.suspect
    together = late_set(evidence, case.stragglers)
    cost, error = suspect.cost_ms, suspect.error_ms
    if together is not None:
        cost, error = together.cost_ms, together.error_ms
    elif take_turns(case.stragglers, evidence):
        cost = sum(d.suspect.cost_ms for d in case.stragglers)
        error = math.hypot(*(d.suspect.error_ms for d in case.stragglers))
    step = job_step(evidence, cost)
    gaining = sum(g > LOSES * (evidence.step_ms or 0.0) for g in suspect.gains_ms)
    confidence, sure = how_sure(first, evidence)
    late = [a for a in actions if mends(a, case)][:MOST_NAMED]
    first_steps = [
        (f"{named_ranks(a.ranks).capitalize()}: " if len(late) > 1 else "") + in_words(a, step.ms) for a in late
    ]
    of_cause = advice_for(suspect, first.cause, evidence)
    second = of_cause if together is not None and together.advice else of_cause[1:]
    second = [(f"Rank {suspect.rank}: " if len(late) > 1 else "") + line for line in second]
    return Verdict(
        kind="straggler",
        ranks=[a.suspect.rank for a in case.stragglers],
        share_of_steps_pct=100.0 * gaining / len(suspect.gains_ms) if suspect.gains_ms else None,
        cause=first.cause,
        cost_ms_per_step=cost,
        cost_error_ms=error,
        confidence=confidence,
        sure=sure,
        step_ms=step.ms,
        step_source="unrecorded" if step.unrecorded else "recorded",
        p_value=suspect.p_value,
        sentence=_sentence(case, step, gaining, together),
        why=_why(case, step, gaining, together),
        next=[*first_steps, *second],
    )


def _sentence(case: Case, step: Step, gaining: int, together: LateSet | None) -> str:
    several = len(case.stragglers) > 1
    found = _several(case, step, gaining, together) if several else _alone(case, step, gaining)
    return found + _absent(case.evidence)


def _alone(case: Case, step: Step, gaining: int) -> str:
    """Return what the costliest rank does."""
    evidence, first = case.evidence, case.stragglers[0]
    suspect = first.suspect
    of = f"of each {step_time(step.ms)} step ({share(suspect.cost_ms, step.ms)})"
    cost = with_error(suspect.cost_ms, suspect.error_ms)
    does = _does(suspect, first.cause)
    steps = len(suspect.gains_ms)
    if first.once:
        when = f"once in {steps} recorded steps, by" if gaining < 2 else f"in {gaining} of {steps} steps, by up to"
        worst = amount(max(suspect.gains_ms))
        return f"Rank {suspect.rank} held the job up {when} {worst}; on average {cost} {of}. {does}"
    often = "every step" if gaining == steps else f"{gaining} of {steps} steps"
    ranks = len(evidence.ranks) + len(evidence.missing)
    whom = f"Rank {suspect.rank} of {ranks:,}" if ranks > 2 else f"Rank {suspect.rank}"
    return f"{whom} holds up {often}: {cost} {of}. {does}"


def _does(suspect: Suspect, cause: str) -> str:
    extra = next((o for o in suspect.operators if o.calls - o.peers_calls >= 1), None)
    if cause == "extra_compute" and extra is not None:
        return f"It runs {extra.calls - extra.peers_calls:.0f} more {extra.name} a step than its peers."
    return sentence_of(cause_record(cause).phrase)


def _absent(evidence: Evidence) -> str:
    if not evidence.missing:
        return ""
    ranks = len(evidence.ranks) + len(evidence.missing)
    return f" {len(evidence.missing):,} of {ranks:,} ranks are missing; one of them may be slower."


def _several(case: Case, step: Step, gaining: int, together: LateSet | None) -> str:
    evidence, stragglers = case.evidence, case.stragglers
    ranks = [d.suspect.rank for d in stragglers]
    total = sum(d.suspect.cost_ms for d in stragglers)
    same = len({d.cause for d in stragglers}) == 1
    does = sentence_of(cause_record(stragglers[0].cause).phrase, several=True) if same else ""
    if take_turns(stragglers, evidence):
        found = (
            f"{named_ranks(ranks).capitalize()} take turns: each step waits for another one, {amount(total)} of each "
            f"{step_time(step.ms)} step ({share(total, step.ms)}). {does}"
        )
        return found.rstrip()
    if together is not None:
        cost = with_error(together.cost_ms, together.error_ms)
        of = f"of each {step_time(step.ms)} step ({share(together.cost_ms, step.ms)})"
        return f"{together.words} hold the job up: {cost} {of}. {does}".rstrip()
    if same:
        others = ", ".join(f"rank {d.suspect.rank} ({amount(d.suspect.cost_ms)})" for d in stragglers[1:MOST_NAMED])
        return f"{_alone(case, step, gaining)} Late too: {others}{' ...' if len(stragglers) > MOST_NAMED else ''}."
    named = [
        f"rank {d.suspect.rank} ({cause_record(d.cause).noun}, {with_error(d.suspect.cost_ms, d.suspect.error_ms)})"
        for d in stragglers[:MOST_NAMED]
    ]
    more = f" and {len(stragglers) - MOST_NAMED} more" if len(stragglers) > MOST_NAMED else ""
    listed = f"{', '.join(named)}{more}" if more or len(named) > 2 else " and ".join(named)
    return f"{len(stragglers)} ranks hold the job up: {listed}, of each {step_time(step.ms)} step."


def _why(case: Case, step: Step, gaining: int, together: LateSet | None) -> list[str]:
    evidence, first = case.evidence, case.stragglers[0]
    suspect, cause = first.suspect, cause_record(first.cause)
    several = len(case.stragglers) > 1
    why = []
    if several and together is None and _mended_together(case):
        why.append(f"Fixing all of them saves {amount(suspect.together_ms)} of each {step_time(step.ms)} step.")
    why += [f"What follows is said of rank {suspect.rank}, the costliest of them."] if several else []
    why += _named(suspect, first.cause, evidence)
    named = suspect.explained.get(first.cause)
    more = f"It does {amount(suspect.excess_ms)} per step more than its peers where it is late"
    if named is not None and suspect.excess_ms > 0:
        why.append(f"{more}; {amount(named)} of that is {cause.noun}.")
    elif suspect.explained:
        why.append(f"{more}; leading: {parts(suspect.explained)}.")
    why += step_log_line(first, evidence)
    why += reasons(case, suspect.rank, first.cause)
    why.append(_by_step(suspect, gaining))
    peers = len(evidence.ranks) - 1
    if suspect.held_ms > 0 and peers:
        who = "The other rank waits" if peers == 1 else "The ranks of its group wait"
        why.append(f"{who} {amount(suspect.held_ms)} a step for it.")
    if suspect.beside and together is None:
        others = named_ranks(suspect.beside)
        why.append(f"The cost counts with {others} fixed too: they are late at the same place.")
    cost_ms = suspect.cost_ms if together is None else together.cost_ms
    paid = hours(cost_ms, step.ms, len(evidence.ranks)) if evidence.device else ""
    if paid:
        why.append(f"That is{paid.removeprefix(',')}.")
    if step.note and (first.cause not in DEVICE_CAUSES or step.unrecorded):
        why.append(step.note)
    return why


def _mended_together(case: Case) -> bool:
    """Return whether the joint cost of all stragglers is known: they, and no further ranks, were equalised together."""
    first = case.stragglers[0].suspect
    ranks = sorted(d.suspect.rank for d in case.stragglers)
    return first.together_ms > first.cost_ms and sorted({first.rank, *first.beside}) == ranks


def _named(suspect: Suspect, cause: str, evidence: Evidence) -> list[str]:
    """Return operators, the region and lines of code behind the cause, by name."""
    found = []
    if cause in DEVICE_CAUSES and suspect.operators:
        most = suspect.operators[0]
        what = "of device time" if evidence.device else "by itself"
        where = f", most of them in {most.line}" if most.line else ""
        own, other = told_apart(most.ms, most.peers_ms)
        found.append(
            f"{most.name}: {most.calls:.0f} a step there and {most.peers_calls:.0f} on a peer, {own} {what} against "
            f"{other}{where}."
        )
    lines = suspect.lines.get(cause, {})
    if lines:
        line, ms = next(iter(lines.items()))
        found.append(f"It passes in {line}: {amount(ms)} a step.")
    elif not found and (line := facts_of(suspect, cause, evidence).line):
        found.append(f"It passes in {line}.")
    if (region := suspect.regions.get(cause)) is not None:
        own, other = told_apart(region.ms, region.peers_ms)
        found.append(f"Most of it lies in the region {region.region}: {own} a step there, {other} on its peers.")
    return found


def _by_step(suspect: Suspect, gaining: int) -> str:
    most = max(suspect.gains_ms, default=0.0)
    decimals = 0 if most >= 3 else 1 if most >= 0.3 else 2
    shown = ", ".join(f"{max(g, 0.0):,.{decimals}f}" for g in suspect.gains_ms[:8])
    more = " ..." if len(suspect.gains_ms) > 8 else ""
    return f"{gaining} of {len(suspect.gains_ms)} recorded steps lose time to it: {shown}{more} ms."
