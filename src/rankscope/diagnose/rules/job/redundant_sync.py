"""The same gradients are reduced after each micro-batch of a step."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.rule import Case, Rule, job_finding
from rankscope.records.report import Finding

__all__ = ["RULE"]


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
    if evidence.repeats < 2:
        return []
    return job_finding(
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


RULE = Rule(
    kind="redundant_sync",
    noun="gradients reduced again",
    advice=(
        "Call all but the last backward of a step under no_sync() (DDP) or set_requires_gradient_sync(False) (FSDP2).",
    ),
    find=_find,
)
