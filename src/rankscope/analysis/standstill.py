"""A job that stood still and did not go on: that is what its reader has come for, whatever the windows say."""

from __future__ import annotations

from rankscope.records.report import Verdict
from rankscope.records.running.hang import HangVerdict

__all__ = ["stood_still"]


def stood_still(verdict: Verdict, hang: HangVerdict | None) -> None:
    """Put the standstill first: into the sentence where there is no other verdict, else before its reasons.

    Args:
        verdict: of the windows and the step logs; changed.
        hang: why no step was made; None where the job did not stand still. One that still advanced is no answer.
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
