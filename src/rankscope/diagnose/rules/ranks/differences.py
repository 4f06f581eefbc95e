"""Ranks that differ from their peers in a way worth knowing, though it costs the job (nearly) nothing today.

If there is a straggler, only large differences are reported, and not the same time twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.causes.wording import amount, cause_record
from rankscope.diagnose.base.contention import is_machines
from rankscope.diagnose.base.decision import StragglerDecision
from rankscope.diagnose.base.rule import Case, Rule
from rankscope.diagnose.rules.ranks.missing_traces import late_beside_missing
from rankscope.records.evidence import Anomaly, Evidence, Suspect
from rankscope.records.report import Finding

__all__ = ["RULE"]

MATERIAL_STEP = 0.10
"""Share of the step from which on a difference is reported in addition to a straggler. Side effects of a fault (a pause
of 0.5 ms with a delay of 60) are below; a second fault of that size costs too much to leave out."""
MATERIAL_LATENESS = 0.25
"""The same as a share of the straggler's lateness that the named cause does not explain."""


def _find(case: Case) -> list[Finding]:
    evidence, stragglers = case.evidence, case.stragglers
    reported = {(a.suspect.rank, a.cause) for a in stragglers}
    reported |= {(s.rank, cause or "unexplained") for s, cause in late_beside_missing(case)}
    found = []
    for difference in evidence.anomalies:
        if (difference.rank, difference.cause) in reported or (
            stragglers and not _material(difference, stragglers, evidence)
        ):
            continue
        if not evidence.device and is_machines(evidence, difference.rank, difference.own_ms - difference.peers_ms):
            continue
        suspect = next((s for s in evidence.suspects if s.rank == difference.rank), None)
        cost = _part(suspect, difference.cause) if suspect is not None else 0.0
        is_straggler = any(a.suspect.rank == difference.rank for a in stragglers)
        found.append(_difference(difference, None if is_straggler else max(cost, 0.0)))
    return found


def _part(suspect: Suspect, cause: str) -> float:
    """Return the part of a rank's cost that belongs to this cause, by its share of the rank's extra time, so that no
    cost is reported twice."""
    if suspect.excess_ms <= 0 or not suspect.explained:
        return suspect.cost_ms
    return suspect.cost_ms * min(suspect.explained.get(cause, 0.0) / suspect.excess_ms, 1.0)


def _material(difference: Anomaly, stragglers: Sequence[StragglerDecision], evidence: Evidence) -> bool:
    more = difference.own_ms - difference.peers_ms
    own = next((a for a in stragglers if a.suspect.rank == difference.rank), None)
    if own is None:
        return more > MATERIAL_STEP * evidence.whole_step_ms
    # In its late segments the difference is part of the same lateness, so only what the cause does not explain counts.
    late = own.suspect.excess_ms
    rest = late - own.suspect.explained.get(own.cause, 0.0)
    inside = min(own.suspect.explained.get(difference.cause, 0.0), rest)
    outside = more - own.suspect.explained.get(difference.cause, 0.0)
    if inside > MATERIAL_LATENESS * late:
        return True
    return own.suspect.explained.get(difference.cause, 0.0) == 0.0 and outside > MATERIAL_STEP * evidence.whole_step_ms


def _difference(difference: Anomaly, cost: float | None) -> Finding:
    line = (
        f"{amount(difference.own_ms)} per step on rank {difference.rank}, {amount(difference.peers_ms)} on its peers."
    )
    if difference.own_count is not None and difference.peers_count is not None:
        own, peers = f"{difference.own_count:.0f}", f"{difference.peers_count:.0f}"
        line = f"{own} per step on rank {difference.rank}, {peers} on its peers. {line}"
    hidden = (
        ["By replay that costs the job little or nothing today: its limit is elsewhere."]
        if cost is not None and cost < 1.0
        else []
    )
    return Finding(
        id=f"{difference.cause}-rank-{difference.rank}",
        kind=difference.cause,
        ranks=[difference.rank],
        cost_ms_per_step=cost,
        confidence="medium",
        title=f"Rank {difference.rank} differs: {cause_record(difference.cause).noun}",
        evidence=[line, *hidden],
        advice=list(cause_record(difference.cause).advice),
    )


RULE = Rule(kind="difference", find=_find)
