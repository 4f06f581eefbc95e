"""Hosts on which the job's CPU quota ran out while it was recorded."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.rule import Case, Rule, state_finding
from rankscope.records.report import Finding
from rankscope.records.rows import HealthRow

__all__ = ["RULE"]


THROTTLED_PERIODS = 5.0
"""Per cent of the scheduling periods in which the CPU quota was used up; single ones occur with every pool of
threads."""


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
    hosts: dict[str | None, list[HealthRow]] = {}
    for row in evidence.health:
        if (row.cpu_throttled_pct or 0.0) >= THROTTLED_PERIODS:
            hosts.setdefault(row.host, []).append(row)
    found = []
    for host, rows in hosts.items():
        worst = max(rows, key=lambda r: r.cpu_throttled_pct or 0.0)
        quota = "" if worst.cpus is None else f" of {worst.cpus:g} CPUs"
        line = (
            f"The quota{quota} on {host} ran out in {worst.cpu_throttled_pct:.0f} % of the scheduling periods while "
            f"recording; threads were held {amount(worst.cpu_throttled_ms or 0.0)} in all."
        )
        ranks = [r.rank for r in rows]
        found.append(
            state_finding("cpu_throttled", ranks, "The CPU quota of the job's cgroup runs out", [line], "high")
        )
    return found


RULE = Rule(
    kind="cpu_throttled",
    noun="a CPU quota that runs out",
    advice=(
        "Raise the CPU limit of the container or pod, or leave it out.",
        "Or use fewer threads: DataLoader workers and OMP_NUM_THREADS of all ranks together should fit the quota.",
    ),
    find=_find,
)
