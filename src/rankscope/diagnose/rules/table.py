"""Findings: a table of rules, one function each. A rule reads the evidence and returns what it found, or nothing."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.diagnose.rules.health import cpu_throttled, ecc_errors, pcie_degraded
from rankscope.diagnose.rules.job import comm_exposed, host_limits, input_bound, pipeline_wait, redundant_sync
from rankscope.diagnose.rules.memory import out_of_memory
from rankscope.diagnose.rules.missing_ranks import late_beside_lost
from rankscope.diagnose.rules.rank import anomalies, stragglers
from rankscope.diagnose.rules.throttling import gpu_throttled
from rankscope.records.evidence import Evidence
from rankscope.records.report import Finding

__all__ = ["RULES", "Rule", "find"]

Rule = Callable[[Evidence], list[Finding]]

RULES: tuple[Rule, ...] = (
    stragglers,
    late_beside_lost,
    anomalies,
    redundant_sync,
    comm_exposed,
    input_bound,
    host_limits,
    pipeline_wait,
    out_of_memory,
    gpu_throttled,
    ecc_errors,
    pcie_degraded,
    cpu_throttled,
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
