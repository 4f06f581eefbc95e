"""All rules. To add one: a file in the room it belongs to, and a line here. Its names and advice follow from the table.

Other packages add rules through the entry points ``rankscope.rules`` (see :mod:`rankscope.plugins`).
"""

from __future__ import annotations

from collections.abc import Callable

from rankscope import plugins
from rankscope.causes.table import BY_NAME
from rankscope.diagnose.base.decision import decide
from rankscope.diagnose.base.rule import Case, Rule
from rankscope.diagnose.rules.job import (
    comm_exposed,
    host_bound,
    input_bound,
    pipeline_wait,
    redundant_sync,
    uneven_stages,
)
from rankscope.diagnose.rules.machine import (
    contended,
    cpu_throttled,
    ecc_errors,
    gpu_throttled,
    out_of_memory,
    pcie_degraded,
)
from rankscope.diagnose.rules.ranks import differences, missing_traces, records_lost, stragglers
from rankscope.records.evidence import Evidence
from rankscope.records.report import Finding

__all__ = ["BY_KIND", "OURS", "RULES", "advice_of", "as_markdown", "find", "name_of", "open_case"]

OURS: tuple[Rule, ...] = (
    stragglers.RULE,
    missing_traces.RULE,
    differences.RULE,
    redundant_sync.RULE,
    comm_exposed.RULE,
    input_bound.RULE,
    host_bound.RULE,
    uneven_stages.RULE,
    pipeline_wait.RULE,
    records_lost.RULE,
    out_of_memory.RULE,
    gpu_throttled.RULE,
    ecc_errors.RULE,
    pcie_degraded.RULE,
    cpu_throttled.RULE,
    contended.RULE,
)
"""Findings of equal cost are reported in this order."""

RULES = (*OURS, *plugins.load("rules", Rule, frozenset(rule.kind for rule in OURS) | set(BY_NAME), "kind"))

BY_KIND = {rule.kind: rule for rule in RULES}


def open_case(evidence: Evidence) -> Case:
    """Return the input of the rules and the verdict: the evidence, and the stragglers."""
    return Case(evidence=evidence, stragglers=decide(evidence), rules=BY_KIND)


def find(case: Case, failed: Callable[[str, Exception], None] | None = None) -> list[Finding]:
    """Run every rule.

    Args:
        case: what the rules read.
        failed: called with the kind and the error of a rule that raises one, so that the others still count.
            Without it, the error is raised.

    Returns:
        The findings, most costly first, then in the order of the table. Their ids are unique.
    """
    found = [finding for rule in RULES for finding in _guarded(rule, case, failed)]
    found.sort(key=lambda f: -(f.cost_ms_per_step or 0.0))
    seen: dict[str, int] = {}
    for finding in found:
        finding.advice = finding.advice or advice_of(finding.kind)
        seen[finding.id] = seen.get(finding.id, 0) + 1
        if seen[finding.id] > 1:
            finding.id = f"{finding.id}-{seen[finding.id]}"
    return found


def _guarded(rule: Rule, case: Case, failed: Callable[[str, Exception], None] | None) -> list[Finding]:
    try:
        return rule.find(case)
    except Exception as error:
        if failed is None:
            raise
        failed(rule.kind, error)
        return []


def advice_of(kind: str) -> list[str]:
    """Return the advice for a kind of finding or a cause, the most promising first; empty if unknown."""
    words = BY_NAME.get(kind) or BY_KIND.get(kind)
    return list(words.advice) if words is not None else []


def name_of(kind: str) -> str | None:
    """Return a cause or a kind of finding in a few words, None if it is in no table."""
    words = BY_NAME.get(kind) or BY_KIND.get(kind)
    return (words.noun or None) if words is not None else None


def as_markdown() -> str:
    """Return docs/findings.md."""
    rows = [f"| `{rule.kind}` | {rule.noun} | {rule.advice[0]} |" for rule in OURS if rule.noun]
    return "\n".join(
        [
            "# Kinds of findings",
            "",
            "A finding of `report.json` has a `kind`. It is the name of a cause (see the table of",
            "[the guide](guide/slow-rank.md)), or one of these. This file is made from the files in",
            "`rankscope/diagnose/rules`; a test holds both together.",
            "",
            "| `finding.kind` | In words | First thing to try |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )
