"""Communication that is not overlapped by compute."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.rule import Case, Rule, in_all_units, job_finding
from rankscope.diagnose.base.transfers import begin_earlier
from rankscope.records.report import Finding

__all__ = ["RULE"]


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
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
        lines.append(f"With an infinitely fast network the step would shrink by {in_all_units(gain, evidence)}.")
    if evidence.overlap_gain_ms is not None:
        lines.append(
            f"With all transfers hidden it would shrink by {in_all_units(evidence.overlap_gain_ms, evidence)}."
        )
    found = job_finding(
        evidence,
        "comm_exposed",
        "Communication is not hidden behind compute",
        lines,
        "high" if unhidden or share >= 20 else "medium",
        cost_ms=max(gain, 0.0) if gain is not None else None,
    )
    found[0].advice = [begin_earlier(evidence), *RULE.advice[1:]]
    return found


RULE = Rule(
    kind="comm_exposed",
    noun="exposed communication",
    advice=(
        "Let communication start earlier: smaller DDP buckets (bucket_cap_mb), fully_shard on each block.",
        "Move less: bf16 gradients, larger batches per step.",
    ),
    find=_find,
)
