"""All ranks wait for their input, so no rank is late relative to the others."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.rule import Case, Rule, job_finding
from rankscope.records.report import Finding

__all__ = ["RULE"]


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
    if not evidence.step_ms or evidence.input_ms < 0.1 * evidence.whole_step_ms:
        return []
    if any(a.cause == "input_stall" for a in case.stragglers):
        return []
    return job_finding(
        evidence,
        "input_stall",
        "The ranks wait for input",
        [f"Idle while the host sits in the data loader: {amount(evidence.input_ms)} per step and rank."],
        "medium",
    )


RULE = Rule(kind="input_bound", find=_find)
