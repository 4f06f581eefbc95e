"""Findings: a table of rules, one function each. A rule reads the evidence and returns what it found, or nothing."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.diagnose.accuse import Accusation, accuse
from rankscope.diagnose.evidence import Anomaly, Evidence
from rankscope.diagnose.texts import ADVICE, PHRASE, amount
from rankscope.model import Finding

__all__ = ["RULES", "Rule", "find"]

Rule = Callable[[Evidence], list[Finding]]


def stragglers(evidence: Evidence) -> list[Finding]:
    """Ranks that cost the job step time."""
    return [_straggler(a, evidence) for a in accuse(evidence)]


def _straggler(accusation: Accusation, evidence: Evidence) -> Finding:
    suspect, step = accusation.suspect, evidence.step_ms or 0.0
    better = amount(max(step - suspect.cost_ms, 0.0))
    lines = [
        (
            f"Without rank {suspect.rank}'s late segments {amount(step)} become {better} "
            f"(±{amount(suspect.error_ms)}), by replay of the recorded steps."
        ),
        f"By step: {', '.join(amount(g) for g in suspect.gains_ms[:12])}{' ...' if suspect.gains_ms[12:] else ''}.",
        f"In those segments it does {amount(suspect.excess_ms)} per step more than its peers; explained: "
        + (", ".join(f"{c} {amount(ms)}" for c, ms in list(suspect.explained.items())[:3] if ms >= 0.05) or "nothing")
        + ".",
    ]
    if suspect.p_value is not None:
        lines.append(
            f"Chance that steps like these come from noise: p = {suspect.p_value:.3g} (sign flips over steps)."
        )
    if suspect.caused_wait_ms > 0:
        lines.append(
            f"Other ranks' collectives wait {amount(suspect.caused_wait_ms)} per step for it (waiting is not cost)."
        )
    return Finding(
        id=f"{accusation.cause}-rank-{suspect.rank}",
        kind=accusation.cause,
        ranks=[suspect.rank],
        cost_ms_per_step=suspect.cost_ms,
        confidence=accusation.confidence,
        title=f"Rank {suspect.rank} is late: {PHRASE[accusation.cause]}" + (", once" if accusation.once else ""),
        evidence=lines,
        advice=ADVICE[accusation.cause],
    )


def anomalies(evidence: Evidence) -> list[Finding]:
    """Ranks that differ from their peers in a way worth knowing, though it costs (nearly) nothing today."""
    told = {(a.suspect.rank, a.cause) for a in accuse(evidence)}
    accused = {rank for rank, _ in told}
    found = []
    for anomaly in evidence.anomalies:
        if (anomaly.rank, anomaly.cause) in told:
            continue
        cost = next((s.cost_ms for s in evidence.suspects if s.rank == anomaly.rank), 0.0)
        found.append(_anomaly(anomaly, None if anomaly.rank in accused else max(cost, 0.0)))
    return found


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
        title=f"Rank {anomaly.rank} differs from its peers: {PHRASE[anomaly.cause]}",
        evidence=[line, *hidden],
        advice=ADVICE[anomaly.cause],
    )


def comm_exposed(evidence: Evidence) -> list[Finding]:
    """Communication that nothing hides."""
    if evidence.overlap_pct is None or not evidence.step_ms or evidence.pipeline or not evidence.calls:
        return []
    share = 100.0 * evidence.transfer_ms / evidence.step_ms
    much = share >= 10.0
    unhidden = evidence.device and evidence.overlap_pct < 20.0 and share >= 1.5
    if not (much or unhidden):
        return []
    lines = [
        f"{evidence.overlap_pct:.0f} % of communication time is hidden behind compute.",
        f"Exposed per step: {amount(evidence.transfer_ms)} of transfer and {amount(evidence.waiting_ms)} of waiting.",
    ]
    if evidence.network_gain_ms is not None:
        lines.append(
            f"With an infinitely fast network the step would shrink by {amount(max(evidence.network_gain_ms, 0.0))}."
        )
    gain = evidence.network_gain_ms
    return [
        Finding(
            id="comm-exposed",
            kind="comm_exposed",
            ranks=evidence.ranks,
            cost_ms_per_step=max(gain, 0.0) if gain is not None else None,
            confidence="high" if unhidden or share >= 20 else "medium",
            title="Communication is not hidden behind compute",
            evidence=lines,
            advice=ADVICE["comm_exposed"],
        )
    ]


def redundant_sync(evidence: Evidence) -> list[Finding]:
    """The same gradients reduced at each micro-batch."""
    if evidence.repeats < 2:
        return []
    return [
        Finding(
            id="redundant-sync",
            kind="redundant_sync",
            ranks=evidence.ranks,
            cost_ms_per_step=None,
            confidence="high",
            title=f"Gradients are reduced {evidence.repeats} times in each step",
            evidence=[
                (
                    f"{evidence.repeats} forward passes a step, each followed by the same reductions: "
                    f"{evidence.repeat_calls:.0f} calls too many."
                ),
                f"They transfer for {amount(evidence.repeat_ms)} per step; what that costs depends on what hides it.",
            ],
            advice=ADVICE["redundant_sync"],
        )
    ]


def host_limits(evidence: Evidence) -> list[Finding]:
    """Devices that idle because the host is too slow; ``launch_bound`` when the kernels are tiny."""
    if not evidence.device or not evidence.step_ms or evidence.kernel_us is None or evidence.pipeline:
        return []
    share = 100.0 * evidence.host_ms / evidence.step_ms
    if share < 25.0:
        return []
    tiny = evidence.kernel_us < 5.0 and evidence.launches >= 200
    kind = "launch_bound" if tiny else "host_bound"
    lines = [
        (
            f"The devices idle {amount(evidence.host_ms)} of each {amount(evidence.step_ms)} step, waiting for nothing "
            f"({share:.0f} %)."
        ),
        f"{evidence.launches:.0f} kernels a step, half of them shorter than {evidence.kernel_us:.1f} us.",
    ]
    if evidence.host_gain_ms is not None:
        lines.append(f"A host without overhead would gain up to {amount(max(evidence.host_gain_ms, 0.0))} per step.")
    return [
        Finding(
            id=kind.replace("_", "-"),
            kind=kind,
            ranks=evidence.ranks,
            cost_ms_per_step=None,
            confidence="high" if share >= 40 else "medium",
            title="The devices wait for launches" if tiny else "The devices wait for the host",
            evidence=lines,
            advice=ADVICE[kind],
        )
    ]


def input_bound(evidence: Evidence) -> list[Finding]:
    """All ranks wait for data."""
    if not evidence.step_ms or evidence.input_ms < 0.1 * evidence.step_ms:
        return []
    if any(a.cause == "input_stall" for a in accuse(evidence)):
        return []
    return [
        Finding(
            id="input-stall",
            kind="input_stall",
            ranks=evidence.ranks,
            cost_ms_per_step=None,
            confidence="medium",
            title="The ranks wait for input",
            evidence=[f"Idle while the host sits in the data loader: {amount(evidence.input_ms)} per step and rank."],
            advice=ADVICE["input_stall"],
        )
    ]


def pipeline_wait(evidence: Evidence) -> list[Finding]:
    """Stages wait for each other by design."""
    if not evidence.pipeline:
        return []
    return [
        Finding(
            id="pipeline-wait",
            kind="pipeline_wait",
            ranks=evidence.ranks,
            cost_ms_per_step=None,
            confidence="medium",
            title="The ranks are pipeline stages and wait for each other by schedule",
            evidence=[
                f"They wait {amount(evidence.waiting_ms)} and idle {evidence.idle_pct:.0f} % per step on average."
            ],
            advice=ADVICE["pipeline_wait"],
        )
    ]


RULES: tuple[Rule, ...] = (
    stragglers,
    anomalies,
    redundant_sync,
    comm_exposed,
    input_bound,
    host_limits,
    pipeline_wait,
)


def find(evidence: Evidence) -> list[Finding]:
    """Run every rule. Most costly first, then in the order of the table; ids are made unique."""
    found = [finding for rule in RULES for finding in rule(evidence)]
    found.sort(key=lambda f: -(f.cost_ms_per_step or 0.0))
    seen: dict[str, int] = {}
    for finding in found:
        seen[finding.id] = seen.get(finding.id, 0) + 1
        if seen[finding.id] > 1:
            finding.id = f"{finding.id}-{seen[finding.id]}"
    return found
