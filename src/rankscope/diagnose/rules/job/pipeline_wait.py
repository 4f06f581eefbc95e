"""Pipeline stages wait for each other by design."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.rule import Case, Rule, job_finding
from rankscope.records.evidence import Evidence
from rankscope.records.report import Finding

__all__ = ["RULE"]


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
    if not (evidence.pipeline or evidence.staged):
        return []
    return job_finding(
        evidence,
        "pipeline_wait",
        "Pipeline stages wait for each other by schedule",
        [_passes(evidence)],
        "medium",
    )


def _passes(evidence: Evidence) -> str:
    """Return how long the stages wait and idle, both in ms per step."""
    idle = evidence.host_ms + evidence.input_ms
    return f"They wait {amount(evidence.waiting_ms)} and idle {amount(idle)} a step on average."


RULE = Rule(
    kind="pipeline_wait",
    noun="waits of a pipeline",
    advice=("Use more micro-batches per step or an interleaved schedule, and balance the stages' time.",),
    find=_find,
)
