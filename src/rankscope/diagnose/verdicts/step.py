"""The one step time that a verdict's shares and sentences refer to."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.causes.wording import amount
from rankscope.records.evidence import Evidence

__all__ = ["Step", "job_step"]

TOLD = 0.10
"""By how much recorded steps are longer than others from which on the verdict says so."""
DISTORTED = 1.0
"""From which on recording more than doubles the step: what it shows of the host is not the job's any more."""


@dataclass(frozen=True, slots=True)
class Step:
    """The job's step."""

    ms: float
    unrecorded: bool
    """It is that of steps in which nobody recorded."""
    note: str
    """What recording did to the step, where it is worth telling."""


def job_step(evidence: Evidence, cost_ms: float = 0.0) -> Step:
    """Return the step without recording where the run's step log has it, else the mean recorded one.

    Where recording more than doubles the step, or the cost found in recorded steps is no part of an unrecorded one, the
    cost says nothing of the latter: then the recorded step counts.
    """
    recorded, bare = evidence.step_ms or 0.0, evidence.unrecorded_step_ms
    if not bare or not recorded:
        return Step(recorded, False, _added(evidence, recorded))
    slower = recorded / bare - 1.0
    if slower >= DISTORTED or cost_ms >= bare:
        note = f"Recording made steps {recorded / bare:.1f} times as long ({amount(bare)} without): host times are not "
        return Step(recorded, False, f"{note}the job's.")
    told = f"Recording slowed steps by {100 * slower:.0f} %, from {amount(bare)} to {amount(recorded)}"
    note = f"{told}; bars and tables show recorded steps." if slower >= TOLD else ""
    return Step(bare, True, note)


def _added(evidence: Evidence, recorded: float) -> str:
    if evidence.recording_pct < 100 * TOLD:
        return ""
    return f"Recording adds {amount(evidence.recording_ms)} to each {amount(recorded)} step."
