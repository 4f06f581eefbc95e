"""Devices idle because the host launches work too slowly; ``launch_bound`` if the kernels are very short."""

from __future__ import annotations

from rankscope.causes.wording import amount, step_time
from rankscope.diagnose.base.rule import Case, Rule, in_all_units, job_finding
from rankscope.records.evidence import Evidence
from rankscope.records.report import Finding

__all__ = ["RULE", "idle_for_hosts"]


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
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
        lines.append(f"A host without overhead would gain up to {in_all_units(evidence.own_host_gain_ms, evidence)}.")
    return job_finding(
        evidence,
        kind,
        "The devices wait for launches" if tiny else "The devices wait for the host",
        lines,
        "high" if share >= 40 else "medium",
    )


def idle_for_hosts(evidence: Evidence) -> str:
    """Return how much of a step the devices wait for work, and how much of that recording adds."""
    step = evidence.step_ms or evidence.whole_step_ms
    idle = f"The devices idle {amount(evidence.host_ms)} of each {step_time(step)} step while no work is queued"
    if not evidence.recording_ms:
        return f"{idle} ({evidence.own_host_pct:.0f} %)."
    own = f"{amount(evidence.own_host_ms)} of {step_time(step - evidence.added_ms)}"
    return (
        f"{idle}; recording adds {amount(evidence.added_ms)}, without it {own} remain ({evidence.own_host_pct:.0f} %)."
    )


RULE = Rule(
    kind="host_bound",
    noun="host bound",
    advice=("The devices wait for Python: torch.compile, CUDA graphs, larger batches, or fewer and larger operators.",),
    find=_find,
)
