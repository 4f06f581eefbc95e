"""A late rank that shares a group with a rank without a trace: the late rank is known, its cost is not.

The other ranks wait for the late rank. Of the rank without a trace it is only known that its groups waited for it too.
It may have waited for the late rank, be late by itself, or have delayed the late rank. So the verdict abstains and
states what would decide it.
"""

from __future__ import annotations

from rankscope.causes.wording import amount, cause_record, step_time
from rankscope.diagnose.base.decision import CLEAR
from rankscope.diagnose.base.rule import Case, Rule
from rankscope.listing import named_ranks
from rankscope.records.evidence import Evidence, Suspect
from rankscope.records.report import Finding, Verdict
from rankscope.statistics.thresholds import LEAST_COST

__all__ = ["RULE", "late_beside_missing", "verdict_beside_missing"]


def late_beside_missing(case: Case) -> list[tuple[Suspect, str | None]]:
    """Return late ranks whose cost is unknown because another trace is missing, the latest first.

    Each has the cause that its own trace shows, if that is clear.
    """
    evidence = case.evidence
    if not evidence.step_ms or evidence.pipeline or case.stragglers:
        return []
    least = LEAST_COST * evidence.step_ms
    late = [s for s in evidence.suspects if s.lost and s.held_ms >= least]
    return [(s, _cause(s, least)) for s in sorted(late, key=lambda s: -s.held_ms)]


def _cause(suspect: Suspect, least_ms: float) -> str | None:
    if not suspect.explained or suspect.excess_ms < least_ms:
        return None
    cause = max(suspect.explained, key=lambda c: suspect.explained[c])
    return cause if suspect.explained[cause] >= CLEAR * suspect.excess_ms else None


def _find(case: Case) -> list[Finding]:
    return [_finding(suspect, cause, case.evidence) for suspect, cause in late_beside_missing(case)]


def _finding(suspect: Suspect, cause: str | None, evidence: Evidence) -> Finding:
    kind = cause or "unexplained"
    what = f": {cause_record(cause).noun}, at a cost that" if cause else " for a reason that"
    return Finding(
        id=f"{kind}-rank-{suspect.rank}",
        kind=kind,
        ranks=[suspect.rank],
        cost_ms_per_step=None,
        confidence="low",
        title=f"Rank {suspect.rank} is late{what} a missing trace hides",
        evidence=_why(suspect, cause, evidence),
        advice=_next(suspect, cause),
    )


def verdict_beside_missing(case: Case) -> Verdict | None:
    """Return the verdict if the latest rank cannot be judged without another's trace, else None."""
    found = late_beside_missing(case)
    if not found:
        return None
    (suspect, cause), evidence = found[0], case.evidence
    lost = named_ranks(suspect.lost)
    if cause:
        sentence = (
            f"Rank {suspect.rank} is late ({cause_record(cause).phrase}), "
            f"but what that costs cannot be told without a trace of {lost}."
        )
    else:
        sentence = (
            f"Rank {suspect.rank} is late and its own trace shows no reason; {lost}, without a trace, may hold it up."
        )
    return Verdict(
        kind="insufficient_data",
        step_ms=evidence.step_ms,
        sentence=sentence,
        why=_why(suspect, cause, evidence),
        next=_next(suspect, cause),
    )


def _why(suspect: Suspect, cause: str | None, evidence: Evidence) -> list[str]:
    step, lost = step_time(evidence.step_ms or 0.0), named_ranks(suspect.lost)
    more = "It does no more than its peers."
    if suspect.excess_ms >= LEAST_COST * (evidence.step_ms or 0.0):
        more = f"It does {amount(suspect.excess_ms)} per step more than its peers; no single cause explains it."
    if cause:
        more = (
            f"It does {amount(suspect.excess_ms)} per step more than its peers where it is late; "
            f"{amount(suspect.explained[cause])} of that is {cause_record(cause).noun}."
        )
    doubt = (
        f"That rank may wait for rank {suspect.rank}, or be late by itself: then mending rank {suspect.rank} alone "
        "gains nothing."
        if cause
        else f"That rank may be the late one, and rank {suspect.rank} only the first to be held up by it."
    )
    return [
        f"Its group waits {amount(suspect.held_ms)} of each {step} step for rank {suspect.rank}.",
        more,
        f"There is no trace of {lost}, in group {suspect.lost_group} with the late rank. {doubt}",
    ]


def _next(suspect: Suspect, cause: str | None) -> list[str]:
    record = f"Record {named_ranks(suspect.lost)} too: only traces of both tell who waits for whom."
    return [record, *(cause_record(cause).advice if cause else [])]


RULE = Rule(kind="missing_trace", find=_find)
