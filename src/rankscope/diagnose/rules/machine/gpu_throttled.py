"""Device clocks reduced by heat or power, on one rank or on all."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from rankscope.diagnose.base.rule import Case, Rule, state_finding, with_peers
from rankscope.records.report import Confidence, Finding
from rankscope.records.rows import HealthRow

__all__ = ["LIMITING", "RULE"]


LIMITING = {
    "power cap": "power",
    "power brake": "power",
    "board limit": "power",
    "thermal slowdown (software)": "heat",
    "thermal slowdown (hardware)": "heat",
    "hardware slowdown": "heat or power",
    "reliability limit": "voltage",
}
"""Reasons for a low clock other than settings and idleness, and what causes them."""
CLEARLY_SLOWER = 0.90
"""Share of the peers' clock. Devices of one kind under the same load differ by some per cent."""
SLOWER = 0.97
"""Sufficient with a reason that the peers do not have."""
OFTEN, SELDOM = 50.0, 10.0
"""Per cent of the samples."""


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
    found = [f for row, peers in with_peers(evidence) if (f := _throttled(row, peers)) is not None]
    reported = {rank for finding in found for rank in finding.ranks}
    hot = [row for row in evidence.health if row.rank not in reported and _hot(row)]
    if hot:
        clock, most = _median(r.sm_mhz for r in hot), _median(r.sm_max_mhz for r in hot)
        lines = [f"Heat slows {len(hot)} of {len(evidence.health)} GPUs down in most of the samples."]
        if clock is not None and most is not None:
            lines.append(f"Their SM clock is {clock:.0f} MHz of {most:.0f} MHz.")
        found.append(state_finding("gpu_throttled", [r.rank for r in hot], "GPUs are throttled: heat", lines, "medium"))
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
    return state_finding("gpu_throttled", [row.rank], f"Rank {row.rank}'s GPU is throttled{cause}", lines, confidence)


def _limits(reason: str, peers: list[HealthRow]) -> bool:
    return reason in LIMITING and _usual(reason, peers) <= SELDOM


def _usual(reason: str, peers: list[HealthRow]) -> float:
    return statistics.median(p.throttle.get(reason, 0.0) for p in peers)


def _beside(row: HealthRow, peers: list[HealthRow]) -> list[str]:
    """Return lines on temperature and power, which distinguish heat from an insufficient power supply."""
    lines = []
    if row.temperature_c is not None and (warmth := _median(p.temperature_c for p in peers)) is not None:
        lines.append(f"It reached {row.temperature_c:.0f} °C, its peers {warmth:.0f} °C.")
    if row.power_w is not None and row.power_limit_w is not None:
        theirs = _median(p.power_w for p in peers)
        beside = "" if theirs is None else f"; its peers draw {theirs:.0f} W"
        lines.append(f"It draws {row.power_w:.0f} W of the {row.power_limit_w:.0f} W it is allowed{beside}.")
    return lines


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


RULE = Rule(
    kind="gpu_throttled",
    noun="a throttled GPU",
    advice=(
        "Heat: look at the fans, the air flow and the rack (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER).",
        "Power: look at the power limit (nvidia-smi -pl) and the supply of that node; or move the rank to another GPU.",
    ),
    find=_find,
)
