"""Rules on what concerns all ranks: communication, hosts, input, schedules."""

from __future__ import annotations

from rankscope.causes.wording import ADVICE, amount, hours
from rankscope.diagnose.rules.decision import accuse
from rankscope.records.evidence import Evidence
from rankscope.records.report import Confidence, Finding

__all__ = ["comm_exposed", "host_limits", "idle_for_hosts", "input_bound", "pipeline_wait", "redundant_sync"]


def comm_exposed(evidence: Evidence) -> list[Finding]:
    """Communication that nothing hides."""
    if evidence.overlap_pct is None or not evidence.step_ms or evidence.pipeline or not evidence.calls:
        return []
    share = 100.0 * evidence.transfer_ms / evidence.whole_step_ms
    much = share >= 10.0
    unhidden = evidence.device and evidence.overlap_pct < 20.0 and share >= 1.5
    if not (much or unhidden):
        return []
    lines = [
        f"{evidence.overlap_pct:.0f} % of communication time is hidden behind compute.",
        f"Exposed per step: {amount(evidence.transfer_ms)} of transfer and {amount(evidence.waiting_ms)} of waiting.",
    ]
    if evidence.modules:
        most = ", ".join(f"{name} {amount(ms)}" for name, ms in list(evidence.modules.items())[:3])
        lines.append(f"Most of it, per step and waiting included: {most}.")
    gain = evidence.network_gain_ms
    if gain is not None:
        lines.append(f"With an infinitely fast network the step would shrink by {_share(gain, evidence)}.")
    if evidence.overlap_gain_ms is not None:
        lines.append(f"With all transfers hidden it would shrink by {_share(evidence.overlap_gain_ms, evidence)}.")
    return _job_wide(
        evidence,
        "comm_exposed",
        "Communication is not hidden behind compute",
        lines,
        "high" if unhidden or share >= 20 else "medium",
        cost_ms=max(gain, 0.0) if gain is not None else None,
    )


def _job_wide(
    evidence: Evidence,
    kind: str,
    title: str,
    lines: list[str],
    confidence: Confidence,
    cost_ms: float | None = None,
) -> list[Finding]:
    """The one finding of a rule: it concerns all ranks, and its kind is its anchor."""
    return [
        Finding(
            id=kind.replace("_", "-"),
            kind=kind,
            ranks=evidence.ranks,
            cost_ms_per_step=cost_ms,
            confidence=confidence,
            title=title,
            evidence=lines,
            advice=ADVICE[kind],
        )
    ]


def _share(gain_ms: float, evidence: Evidence) -> str:
    """A gain per step in all units a reader may count in."""
    gain = max(gain_ms, 0.0)
    share = 100 * gain / evidence.whole_step_ms
    return f"{amount(gain)} ({share:.1f} %" + (
        f", {hours(gain, len(evidence.ranks))})" if evidence.device and share >= 1.0 else ")"
    )


def redundant_sync(evidence: Evidence) -> list[Finding]:
    """The same gradients reduced at each micro-batch."""
    if evidence.repeats < 2:
        return []
    return _job_wide(
        evidence,
        "redundant_sync",
        f"Gradients are reduced {evidence.repeats} times in each step",
        [
            (
                f"{evidence.repeats} forward passes a step, each followed by the same reductions: "
                f"{evidence.repeat_calls:.0f} calls too many."
            ),
            f"They transfer for {amount(evidence.repeat_ms)} per step; what that costs depends on what hides it.",
        ],
        "high",
    )


def host_limits(evidence: Evidence) -> list[Finding]:
    """Devices that idle because the host is too slow; ``launch_bound`` when the kernels are tiny."""
    if not evidence.device or not evidence.step_ms or evidence.kernel_us is None or evidence.pipeline:
        return []
    share = evidence.own_host_pct
    if share < 25.0:
        return []
    tiny = evidence.kernel_us < 5.0 and evidence.launches >= 200
    kind = "launch_bound" if tiny else "host_bound"
    lines = [
        idle_for_hosts(evidence),
        f"{evidence.launches:.0f} kernels a step, half of them shorter than {evidence.kernel_us:.1f} us.",
    ]
    if evidence.own_host_gain_ms is not None:
        lines.append(f"A host without overhead would gain up to {_share(evidence.own_host_gain_ms, evidence)}.")
    return _job_wide(
        evidence,
        kind,
        "The devices wait for launches" if tiny else "The devices wait for the host",
        lines,
        "high" if share >= 40 else "medium",
    )


def idle_for_hosts(evidence: Evidence) -> str:
    """How much of a step the devices wait for work, and what of that is recording's."""
    step = evidence.whole_step_ms
    idle = f"The devices idle {amount(evidence.host_ms)} of each {amount(step)} step while no work is queued"
    if not evidence.recording_ms:
        return f"{idle} ({evidence.own_host_pct:.0f} %)."
    own = f"{amount(evidence.own_host_ms)} of {amount(step - evidence.recording_ms)}"
    return (
        f"{idle}; recording adds {amount(evidence.recording_ms)}, without it {own} remain "
        f"({evidence.own_host_pct:.0f} %)."
    )


def input_bound(evidence: Evidence) -> list[Finding]:
    """All ranks wait for data."""
    if not evidence.step_ms or evidence.input_ms < 0.1 * evidence.whole_step_ms:
        return []
    if any(a.cause == "input_stall" for a in accuse(evidence)):
        return []
    return _job_wide(
        evidence,
        "input_stall",
        "The ranks wait for input",
        [f"Idle while the host sits in the data loader: {amount(evidence.input_ms)} per step and rank."],
        "medium",
    )


def pipeline_wait(evidence: Evidence) -> list[Finding]:
    """Stages wait for each other by design."""
    if not (evidence.pipeline or evidence.staged):
        return []
    return _job_wide(
        evidence,
        "pipeline_wait",
        "Pipeline stages wait for each other by schedule",
        [f"They wait {amount(evidence.waiting_ms)} and idle {evidence.idle_pct:.0f} % per step on average."],
        "medium",
    )
