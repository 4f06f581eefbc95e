"""Rules on the state of devices and hosts. What is wrong there explains lateness; by itself it has no cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from rankscope.diagnose.evidence import Evidence
from rankscope.diagnose.texts import ADVICE, amount
from rankscope.model import Confidence, Finding, HealthRow

__all__ = ["LIMITING", "cpu_throttled", "ecc_errors", "gpu_throttled", "pcie_degraded", "reasons"]

LIMITING = {
    "power cap": "power",
    "power brake": "power",
    "board limit": "power",
    "thermal slowdown (software)": "heat",
    "thermal slowdown (hardware)": "heat",
    "hardware slowdown": "heat or power",
    "reliability limit": "voltage",
}
"""Reasons for a low clock that are no choice and no idleness, and what stands behind them."""
CLEARLY_SLOWER = 0.90
"""Share of the peers' clock. Devices of one kind under the same load differ by some per cent."""
SLOWER = 0.97
"""Enough with a reason that the peers do not have."""
OFTEN, SELDOM = 50.0, 10.0
"""Per cent of the samples."""
THROTTLED_PERIODS = 5.0
"""Per cent of the scheduling periods in which the CPU quota ran out; single ones happen to every pool of threads."""

Rule = Callable[[Evidence], list[Finding]]


def gpu_throttled(evidence: Evidence) -> list[Finding]:
    """Devices clearly slower than their peers, or held down for a reason those do not have; and all that run hot."""
    found = [f for row, peers in _with_peers(evidence) if (f := _throttled(row, peers)) is not None]
    told = {rank for finding in found for rank in finding.ranks}
    hot = [row for row in evidence.health if row.rank not in told and _hot(row)]
    if hot:
        clock, most = _median(r.sm_mhz for r in hot), _median(r.sm_max_mhz for r in hot)
        lines = [f"Heat slows {len(hot)} of {len(evidence.health)} GPUs down in most of the samples."]
        if clock is not None and most is not None:
            lines.append(f"Their SM clock is {clock:.0f} MHz of {most:.0f} MHz.")
        found.append(_finding("gpu_throttled", [r.rank for r in hot], "GPUs are throttled: heat", lines, "medium"))
    return found


def _hot(row: HealthRow) -> bool:
    return any(share >= OFTEN and LIMITING.get(reason) == "heat" for reason, share in row.throttle.items())


def _throttled(row: HealthRow, peers: list[HealthRow]) -> Finding | None:
    theirs = _median(p.sm_mhz for p in peers)
    if row.sm_mhz is None or theirs is None or row.throttle.get("idle", 0.0) >= OFTEN:
        return None
    ratio = row.sm_mhz / theirs
    own = [reason for reason, share in row.throttle.items() if share >= OFTEN and _limits(reason, peers)]
    if ratio > CLEARLY_SLOWER and not (own and ratio <= SLOWER):
        return None
    of_max = "" if row.sm_max_mhz is None else f" of at most {row.sm_max_mhz:.0f}"
    lines = [
        f"Its SM clock is {row.sm_mhz:.0f} MHz{of_max}; its peers' is {theirs:.0f} MHz.",
        *(
            f"The driver says: {reason}, in {row.throttle[reason]:.0f} % of the samples; on its peers in "
            f"{_usual(reason, peers):.0f} %."
            for reason in own
        ),
        *_beside(row, peers),
    ]
    cause = f": {LIMITING[own[0]]}" if own else ""
    confidence: Confidence = "high" if own and ratio <= CLEARLY_SLOWER else "medium"
    return _finding("gpu_throttled", [row.rank], f"Rank {row.rank}'s GPU is throttled{cause}", lines, confidence)


def _limits(reason: str, peers: list[HealthRow]) -> bool:
    return reason in LIMITING and _usual(reason, peers) <= SELDOM


def _usual(reason: str, peers: list[HealthRow]) -> float:
    return statistics.median(p.throttle.get(reason, 0.0) for p in peers)


def _beside(row: HealthRow, peers: list[HealthRow]) -> list[str]:
    """Temperature and power, which tell heat from a bad supply."""
    lines = []
    if row.temperature_c is not None and (warmth := _median(p.temperature_c for p in peers)) is not None:
        lines.append(f"It reached {row.temperature_c:.0f} °C, its peers {warmth:.0f} °C.")
    if row.power_w is not None and row.power_limit_w is not None:
        theirs = _median(p.power_w for p in peers)
        beside = "" if theirs is None else f"; its peers draw {theirs:.0f} W"
        lines.append(f"It draws {row.power_w:.0f} W of the {row.power_limit_w:.0f} W it is allowed{beside}.")
    return lines


def ecc_errors(evidence: Evidence) -> list[Finding]:
    """Memory that lost data."""
    return [
        _finding(
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
    for row, peers in _with_peers(evidence, alone=True):
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
        found.append(_finding("pcie_degraded", [row.rank], title, lines, "high" if len(lines) > 1 else "medium"))
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
        found.append(_finding("cpu_throttled", ranks, "The CPU quota of the job's cgroup runs out", [line], "high"))
    return found


_EXPLAINS: dict[str, tuple[Rule, ...]] = {
    "slow_compute": (gpu_throttled, ecc_errors),
    "h2d_copy": (pcie_degraded,),
    "launch_bound": (cpu_throttled,),
    "host_pause": (cpu_throttled,),
    "input_stall": (cpu_throttled,),
    "unexplained": (gpu_throttled, ecc_errors, pcie_degraded, cpu_throttled),
}
"""What can stand behind a cause."""


def reasons(evidence: Evidence, rank: int, cause: str) -> list[str]:
    """What the state of this rank's device and host says of why it is late, in sentences."""
    found = [finding for rule in _EXPLAINS.get(cause, ()) for finding in rule(evidence)]
    return [f"Likely reason: {f.title}. {f.evidence[0]}" for f in found if rank in f.ranks]


def _with_peers(evidence: Evidence, *, alone: bool = False) -> Iterable[tuple[HealthRow, list[HealthRow]]]:
    """Rows and those of the other ranks with a device of the same kind; those without any only if wanted."""
    for row in evidence.health:
        peers = [p for p in evidence.health if p is not row and p.device == row.device]
        if peers or alone:
            yield row, peers


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def _finding(kind: str, ranks: list[int], title: str, lines: list[str], confidence: Confidence) -> Finding:
    return Finding(
        id=f"{kind}-rank-{ranks[0]}",
        kind=kind,
        ranks=ranks,
        cost_ms_per_step=None,
        confidence=confidence,
        title=title,
        evidence=lines,
        advice=ADVICE[kind],
    )
