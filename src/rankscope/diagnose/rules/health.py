"""Rules on the state of devices and hosts. What is wrong there explains lateness; by itself it has no cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from rankscope.causes.wording import amount
from rankscope.diagnose.rules.throttling import gpu_throttled, state_finding, with_peers
from rankscope.records.evidence import Evidence
from rankscope.records.report import Finding
from rankscope.records.rows import HealthRow

__all__ = ["cpu_throttled", "ecc_errors", "pcie_degraded", "reasons"]

THROTTLED_PERIODS = 5.0
"""Per cent of the scheduling periods in which the CPU quota ran out; single ones happen to every pool of threads."""
PAUSES_MS = 1.0
"""Per step. Collections of young objects take microseconds."""

Rule = Callable[[Evidence], list[Finding]]


def ecc_errors(evidence: Evidence) -> list[Finding]:
    """Memory that lost data."""
    return [
        state_finding(
            "ecc_errors",
            [row.rank],
            f"Rank {row.rank}'s GPU has uncorrected memory errors",
            [f"Since its driver was loaded: {row.ecc_uncorrected} uncorrected, {row.ecc_corrected or 0} corrected."],
            "high",
        )
        for row in evidence.health
        if row.ecc_uncorrected
    ]


def pcie_degraded(evidence: Evidence) -> list[Finding]:
    """A link with fewer lanes than it could have, or narrower or older than the peers' links."""
    found = []
    for row, peers in with_peers(evidence, alone=True):
        best = max([p.pcie_width or 0 for p in peers] + [row.pcie_width_max or 0])
        generation = max((p.pcie_generation or 0 for p in peers), default=0)
        lines = []
        if row.pcie_width is not None and row.pcie_width < best:
            lines.append(f"{row.pcie_width} of {best} lanes are in use.")
        # a link at rest drops its speed; the best seen in the window is compared, and only with devices at work
        if row.pcie_generation is not None and row.pcie_generation < generation:
            lines.append(f"It runs at generation {row.pcie_generation}, its peers' at generation {generation}.")
        if not lines:
            continue
        if row.pcie_replays:
            lines.append(f"{row.pcie_replays} transfers were repeated within the recorded windows.")
        title = f"Rank {row.rank}'s GPU has a degraded PCIe link"
        found.append(state_finding("pcie_degraded", [row.rank], title, lines, "high" if len(lines) > 1 else "medium"))
    return found


def cpu_throttled(evidence: Evidence) -> list[Finding]:
    """Hosts on which the job's CPU quota ran out while it was recorded."""
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


_EXPLAINS: dict[str, tuple[Rule, ...]] = {
    "slow_compute": (gpu_throttled,),
    "h2d_copy": (pcie_degraded,),
    "launch_bound": (cpu_throttled,),
    "host_pause": (cpu_throttled,),
    "input_stall": (cpu_throttled,),
    "unexplained": (gpu_throttled, pcie_degraded, cpu_throttled),
}
"""What can stand behind a cause."""


def reasons(evidence: Evidence, rank: int, cause: str) -> list[str]:
    """What the state of this rank's device and host says of why it is late, in sentences.

    What all ranks share is no reason for one of them to be late.
    """
    found = [finding for rule in _EXPLAINS.get(cause, ()) for finding in rule(evidence)]
    mine = [f for f in found if rank in f.ranks and len(f.ranks) < len(evidence.health)]
    collector = _collector(evidence, rank) if cause in {"host_pause", "unexplained"} else []
    return [f"Likely reason: {f.title}. {f.evidence[0]}" for f in mine] + collector


def _collector(evidence: Evidence, rank: int) -> list[str]:
    own = next((r.gc_ms_per_step for r in evidence.health if r.rank == rank), None)
    others = [r.gc_ms_per_step for r in evidence.health if r.rank != rank and r.gc_ms_per_step is not None]
    if own is None or not others or own - (usual := statistics.median(others)) < PAUSES_MS:
        return []
    return [f"Likely reason: garbage collection takes {amount(own)} per step there, {amount(usual)} on its peers."]
