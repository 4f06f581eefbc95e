"""A job that made no progress and did not resume: this comes first in the verdict, whatever the windows show."""

from __future__ import annotations

from rankscope.records.report import Verdict
from rankscope.records.running.hang import HangVerdict

__all__ = ["add_standstill"]


def add_standstill(verdict: Verdict, hang: HangVerdict | None) -> None:
    """Put the standstill first: into the sentence if there is no other verdict, else before its reasons.

    Args:
        verdict: of the windows and the step logs; changed.
        hang: why no step was made; None if the job did not stand still. One whose job still advanced is ignored.
    """
    if hang is None or hang.resumed or hang.kind in ("long", "unknown"):
        return
    if verdict.kind == "insufficient_data":
        verdict.why = [*hang.why, verdict.sentence, *verdict.why]
        verdict.sentence, verdict.reason = hang.sentence, "stood_still"
    else:
        verdict.why.insert(0, f"The job stood still afterwards: {hang.sentence}")
    if hang.next:
        verdict.next = [hang.next, *verdict.next]
