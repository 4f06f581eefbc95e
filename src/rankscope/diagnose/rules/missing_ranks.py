"""A late rank that shares a group with a rank whose trace is missing: who is late is known, what it costs is not.

Others wait for the late rank; but of what the lost one did, only that its groups waited for it too. It may have waited
for the late rank, or be late by itself, or even be what held the late rank up. So the verdict abstains, and says what
would settle it.
"""

from __future__ import annotations

from rankscope.causes.wording import ADVICE, NOUN, PHRASE, amount
from rankscope.diagnose.rules.decision import CLEAR, LEAST_SHARE, accuse
from rankscope.records.evidence import Evidence, Suspect
from rankscope.records.report import Finding, Verdict

__all__ = ["late_beside_lost", "unsettled", "verdict_beside_lost"]


def unsettled(evidence: Evidence) -> list[Suspect]:
    """Ranks that others wait for, of which a lost rank keeps from being told what they cost; the latest first."""
    step = evidence.step_ms
    if not step or evidence.pipeline or accuse(evidence):
        return []
    found = [s for s in evidence.suspects if s.lost and s.held_ms >= LEAST_SHARE * step]
    return sorted(found, key=lambda s: -s.held_ms)


def _cause(suspect: Suspect, evidence: Evidence) -> str | None:
    """What its own trace shows to make it late, if that is clear."""
    if not suspect.explained or suspect.excess_ms < LEAST_SHARE * (evidence.step_ms or 0.0):
        return None
    cause = max(suspect.explained, key=lambda c: suspect.explained[c])
    return cause if suspect.explained[cause] >= CLEAR * suspect.excess_ms else None


def late_beside_lost(evidence: Evidence) -> list[Finding]:
    """One finding per such rank."""
    return [_finding(s, evidence) for s in unsettled(evidence)]


def _finding(suspect: Suspect, evidence: Evidence) -> Finding:
    cause = _cause(suspect, evidence)
    kind = cause or "unexplained"
    what = f": {NOUN[cause]}, at a cost that" if cause else " for a reason that"
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


def verdict_beside_lost(evidence: Evidence) -> Verdict | None:
    """The verdict where the latest rank cannot be judged for want of another's trace."""
    found = unsettled(evidence)
    if not found:
        return None
    suspect = found[0]
    cause = _cause(suspect, evidence)
    lost = _some(suspect.lost)
    if cause:
        sentence = (
            f"Rank {suspect.rank} is late ({PHRASE[cause]}), but what that costs cannot be told without the trace of "
            f"rank {lost}."
        )
    else:
        sentence = (
            f"Rank {suspect.rank} is late and its own trace shows no reason; rank {lost}, whose trace is missing, may "
            "hold it up."
        )
    return Verdict(
        kind="insufficient_data",
        step_ms=evidence.step_ms,
        sentence=sentence,
        why=_why(suspect, cause, evidence),
        next=_next(suspect, cause),
    )


def _why(suspect: Suspect, cause: str | None, evidence: Evidence) -> list[str]:
    step, lost = amount(evidence.step_ms or 0.0), _some(suspect.lost)
    more = "It does no more than its peers."
    if suspect.excess_ms >= LEAST_SHARE * (evidence.step_ms or 0.0):
        more = f"It does {amount(suspect.excess_ms)} per step more than its peers; no single cause explains it."
    if cause:
        more = (
            f"It does {amount(suspect.excess_ms)} per step more than its peers where it is late; "
            f"{amount(suspect.explained[cause])} of that is {NOUN[cause]}."
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
        f"Rank {lost}'s trace is missing; it shares group {suspect.lost_group} with the late rank. {doubt}",
    ]


def _next(suspect: Suspect, cause: str | None) -> list[str]:
    record = (
        f"Record rank {_some(suspect.lost)} too: its trace tells whether it waits for rank {suspect.rank} or is late "
        "by itself."
    )
    return [record, *(ADVICE[cause] if cause else [])]


def _some(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
