"""The one step time that a verdict's shares and sentences refer to."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.causes.wording import amount, step_time
from rankscope.records.evidence import Evidence

__all__ = ["Step", "job_step"]

TOLD = 0.10
"""Share by which recorded steps are longer than others, from which on the verdict mentions it."""
DISTORTED = 1.0
"""The same, from which on recording more than doubles the step, so that recorded host times do not represent the
job."""


@dataclass(frozen=True, slots=True)
class Step:
    """The job's step."""

    ms: float
    unrecorded: bool
    """It is that of steps in which no rank recorded."""
    note: str
    """Effect of recording on the step, if worth mentioning."""


def job_step(evidence: Evidence, cost_ms: float = 0.0) -> Step:
    """Return the step without recording if the run's step log has it, else the mean recorded one.

    If recording more than doubles the step, or the cost found in recorded steps cannot be a part of an unrecorded one,
    the cost does not apply to the latter: then the recorded step is used.
    """
    recorded, bare = evidence.step_ms or 0.0, evidence.unrecorded_step_ms
    if not bare or not recorded:
        return Step(recorded, False, _added(evidence, recorded))
    slower = recorded / bare - 1.0
    if slower >= DISTORTED or cost_ms >= bare:
        note = (
            f"Recording made steps {recorded / bare:.1f} times as long ({step_time(bare)} without): host times are not "
        )
        return Step(recorded, False, f"{note}the job's.")
    sentence = f"Recording slowed steps by {100 * slower:.0f} %, from {step_time(bare)} to {step_time(recorded)}"
    note = f"{sentence}; bars and tables show recorded steps." if slower >= TOLD else ""
    return Step(bare, True, note)


def _added(evidence: Evidence, recorded: float) -> str:
    if evidence.recording_pct < 100 * TOLD:
        return ""
    return f"Recording adds {amount(evidence.recording_ms)} to each {step_time(recorded)} step."
