"""A job that made no progress and did not resume: this comes first in the verdict, whatever the windows show."""

from __future__ import annotations

from rankscope.records.report import Verdict
from rankscope.records.running.hang import HangVerdict

__all__ = ["add_standstill"]


def add_standstill(verdict: Verdict, hang: HangVerdict | None, exit_code: int | None = None) -> None:
    """Put the standstill first: into the sentence if there is no other verdict, else before its reasons.

    Where a rank still advanced when the ranks were asked last, as in an evaluation that outlasts the time limit of a
    collective, that is added to the reasons.

    Args:
        verdict: of the windows and the step logs; changed.
        hang: why no step was made; None if the job did not stand still.
        exit_code: of the job, if known. One that ended well did not stand still for good.
    """
    if hang is None or hang.resumed or hang.kind == "unknown" or exit_code == 0:
        return
    if hang.kind == "long":
        if exit_code is not None and hang.ranks:
            verdict.why.append(f"The job made no step for {hang.idle_s:.0f} s or more before it ended: {hang.sentence}")
        return
    if verdict.kind == "insufficient_data":
        verdict.why = [*hang.why, verdict.sentence, *verdict.why]
        verdict.sentence, verdict.reason = hang.sentence, "stood_still"
    else:
        verdict.why.insert(0, f"The job stood still afterwards: {hang.sentence}")
    if hang.next:
        verdict.next = [hang.next, *verdict.next]
