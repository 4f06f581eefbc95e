"""Confidence of a verdict on a rank: the weakest of its supports decides, and is named."""

from __future__ import annotations

from rankscope.causes.table import DEVICE_CAUSES
from rankscope.causes.wording import amount
from rankscope.diagnose.base.decision import CLEAR, NAMED, StragglerDecision
from rankscope.records.evidence import Evidence
from rankscope.records.report import Confidence

__all__ = ["how_sure", "step_log_line"]

LEVELS: tuple[Confidence, ...] = ("low", "medium", "high")
INPUT_AGREES = 0.5
"""Share of the cost that unrecorded steps must wait for input to confirm it."""


def how_sure(decision: StragglerDecision, evidence: Evidence) -> tuple[Confidence, str]:
    """Return the level, and what keeps it from being higher (or, if nothing does, what it is based on)."""
    suspect = decision.suspect
    steps, ranks = len(suspect.gains_ms), len(evidence.ranks) + len(evidence.missing)
    agrees = _agrees(decision, evidence)
    rows: list[tuple[int, str]] = [
        (
            LEVELS.index(decision.confidence),
            "it was seen in few steps" if decision.once else "it is close to what decides that a rank is late",
        ),
        (
            2 if steps >= 5 or (steps == 4 and agrees) or suspect.measured else 1 if steps >= 3 else 0,
            f"only {steps} steps were recorded",
        ),
        (
            _below(suspect.error_ms / suspect.cost_ms if suspect.cost_ms > 0 else 1.0, 1 / 3, 2 / 3),
            "its error is large",
        ),
        (
            2 if decision.explained >= CLEAR or decision.cause == "unexplained" else int(decision.explained >= NAMED),
            f"the cause explains {100 * decision.explained:.0f} % of its extra time",
        ),
        (
            _below(len(evidence.missing) / max(ranks, 1), 0.001, 0.5),
            f"{len(evidence.missing)} of {ranks} ranks are missing",
        ),
        (
            _below(evidence.pressure_pct, 25.0, 50.0),
            f"threads waited for a CPU {evidence.pressure_pct:.0f} % of the time",
        ),
    ]
    if decision.cause not in DEVICE_CAUSES:
        rows.append(
            (_below(evidence.recording_pct, 25.0, 50.0), f"recording is {evidence.recording_pct:.0f} % of the step")
        )
        rows.append((0 if evidence.stacks else 2, "Python's stacks were recorded, which slows hosts several times"))
    if agrees is False:
        rows.append((0, "unrecorded steps do not show it"))
    level, words = min(rows, key=lambda row: row[0])
    if level < 2:
        return LEVELS[level], words
    peers = len(evidence.ranks) - 1
    found = f"{steps} steps, {peers} peer{'s' if peers > 1 else ''}"
    return "high", found + (", unrecorded steps agree" if agrees else "")


def _below(value: float, high: float, medium: float) -> int:
    return 2 if value < high else 1 if value < medium else 0


def _input_unrecorded(rank: int, evidence: Evidence) -> tuple[float, float] | None:
    """Return how long unrecorded steps of the rank wait for input, and those of the median other rank, ms; None if
    unknown."""
    if evidence.run_steps is None or evidence.unrecorded_step_ms is None:
        return None
    waits = {
        row.rank: row.input_pct * row.median_ms / 100.0
        for row in evidence.run_steps.rows
        if row.input_pct is not None and row.median_ms
    }
    others = sorted(ms for other, ms in waits.items() if other != rank)
    return (waits[rank], others[len(others) // 2]) if rank in waits and others else None


def _agrees(decision: StragglerDecision, evidence: Evidence) -> bool | None:
    """Return whether the step log confirms it; None if it cannot."""
    if decision.cause != "input_stall" or decision.once:
        return None
    known = _input_unrecorded(decision.suspect.rank, evidence)
    return None if known is None else known[0] - known[1] >= INPUT_AGREES * decision.suspect.cost_ms


def step_log_line(decision: StragglerDecision, evidence: Evidence) -> list[str]:
    """Return what the run's unrecorded steps show on a rank that waits for input."""
    known = _input_unrecorded(decision.suspect.rank, evidence)
    if decision.cause != "input_stall" or known is None:
        return []
    steps = evidence.run_steps.unprofiled_steps if evidence.run_steps else 0
    return [f"In {steps:,} unrecorded steps it waits {amount(known[0])} each for input, its peers {amount(known[1])}."]
