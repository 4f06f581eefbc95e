"""Rules on single ranks: those that hold the job up, and those that only differ."""

from __future__ import annotations

from rankscope.causes.wording import ADVICE, NOUN, amount, hours, parts
from rankscope.diagnose.rules.decision import Accusation, accuse
from rankscope.diagnose.rules.health import reasons
from rankscope.diagnose.rules.missing_ranks import late_beside_lost
from rankscope.records.evidence import Anomaly, Evidence
from rankscope.records.report import Finding

__all__ = ["anomalies", "stragglers"]

MATERIAL_STEP = 0.10
"""Share of the step from which on a difference is told beside an accusation. The side effects of a fault (a pause of
0.5 ms beside a stall of 60) are below; a second fault of that size costs too much to leave out."""
MATERIAL_LATENESS = 0.25
"""The same as a share of the accused rank's lateness, of what the named cause leaves open."""


def stragglers(evidence: Evidence) -> list[Finding]:
    """Ranks that cost the job step time."""
    return [_straggler(a, evidence) for a in accuse(evidence)]


def _straggler(accusation: Accusation, evidence: Evidence) -> Finding:
    suspect = accusation.suspect
    step = (evidence.whole_step_ms if accusation.once else evidence.step_ms) or 0.0
    better = amount(max(step - suspect.cost_ms, 0.0))
    also = f", with rank {', '.join(map(str, suspect.beside[:8]))} mended too," if suspect.beside else ""
    lines = [
        (
            f"Without rank {suspect.rank}'s late segments{also} {amount(step)} become {better} "
            f"(±{amount(suspect.error_ms)}), by replay of the recorded steps."
        ),
        f"That is {100 * suspect.cost_ms / step:.0f} % of the step"
        + (f", {hours(suspect.cost_ms, len(evidence.ranks))}." if evidence.device else "."),
        f"By step: {', '.join(amount(g) for g in suspect.gains_ms[:12])}{' ...' if suspect.gains_ms[12:] else ''}.",
        (
            f"In those segments it does {amount(suspect.excess_ms)} per step more than its peers; explained: "
            f"{parts(suspect.explained)}."
        ),
    ]
    if suspect.p_value is not None:
        lines.append(
            f"Chance that steps like these come from noise: p = {suspect.p_value:.3g} (sign flips over steps)."
        )
    if suspect.caused_wait_ms > 0:
        lines.append(
            f"Other ranks' collectives wait {amount(suspect.caused_wait_ms)} per step for it (waiting is not cost)."
        )
    lines += reasons(evidence, suspect.rank, accusation.cause)
    return Finding(
        id=f"{accusation.cause}-rank-{suspect.rank}",
        kind=accusation.cause,
        ranks=[suspect.rank],
        cost_ms_per_step=suspect.cost_ms,
        confidence=accusation.confidence,
        title=f"Rank {suspect.rank} is late: {NOUN[accusation.cause]}" + (", once" if accusation.once else ""),
        evidence=lines,
        advice=ADVICE[accusation.cause],
    )


def anomalies(evidence: Evidence) -> list[Finding]:
    """Ranks that differ from their peers in a way worth knowing, though it costs (nearly) nothing today.

    Beside an accusation only what is material and not the same time seen twice.
    """
    accused = accuse(evidence)
    told = {(a.suspect.rank, a.cause) for a in accused}
    told |= {(f.ranks[0], f.kind) for f in late_beside_lost(evidence)}
    found = []
    for anomaly in evidence.anomalies:
        if (anomaly.rank, anomaly.cause) in told or (accused and not _material(anomaly, accused, evidence)):
            continue
        cost = next((s.cost_ms for s in evidence.suspects if s.rank == anomaly.rank), 0.0)
        mine = any(a.suspect.rank == anomaly.rank for a in accused)
        found.append(_anomaly(anomaly, None if mine else max(cost, 0.0)))
    return found


def _material(anomaly: Anomaly, accused: list[Accusation], evidence: Evidence) -> bool:
    more = anomaly.own_ms - anomaly.peers_ms
    own = next((a for a in accused if a.suspect.rank == anomaly.rank), None)
    if own is None:
        return more > MATERIAL_STEP * evidence.whole_step_ms
    # in its late segments the anomaly is one more account of the same lateness: what the cause leaves open counts
    late = own.suspect.excess_ms
    rest = late - own.suspect.explained.get(own.cause, 0.0)
    inside = min(own.suspect.explained.get(anomaly.cause, 0.0), rest)
    outside = more - own.suspect.explained.get(anomaly.cause, 0.0)
    if inside > MATERIAL_LATENESS * late:
        return True
    return own.suspect.explained.get(anomaly.cause, 0.0) == 0.0 and outside > MATERIAL_STEP * evidence.whole_step_ms


def _anomaly(anomaly: Anomaly, cost: float | None) -> Finding:
    line = f"{amount(anomaly.own_ms)} per step on rank {anomaly.rank}, {amount(anomaly.peers_ms)} on its peers."
    if anomaly.own_count is not None and anomaly.peers_count is not None:
        line = (
            f"{anomaly.own_count:.0f} per step on rank {anomaly.rank}, {anomaly.peers_count:.0f} on its peers. " + line
        )
    hidden = (
        ["The replay finds little or nothing to gain by mending it: the job's limit is elsewhere."]
        if cost is not None and cost < 1.0
        else []
    )
    return Finding(
        id=f"{anomaly.cause}-rank-{anomaly.rank}",
        kind=anomaly.cause,
        ranks=[anomaly.rank],
        cost_ms_per_step=cost,
        confidence="medium",
        title=f"Rank {anomaly.rank} differs: {NOUN[anomaly.cause]}",
        evidence=[line, *hidden],
        advice=ADVICE[anomaly.cause],
    )
