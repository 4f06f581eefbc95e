"""The verdict on a busy machine, with the advice that stands beside it."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diagnose.base.advice import MOST, in_words
from rankscope.diagnose.rules.machine.contended import contended_verdict
from rankscope.records.evidence import Evidence
from rankscope.records.report import Action, Verdict

__all__ = ["busy_machine"]


def busy_machine(evidence: Evidence, actions: Sequence[Action]) -> Verdict | None:
    """Return the verdict if contention limits the job and no rank does, else None.

    Args:
        evidence: of the run.
        actions: recommended actions; none if it is others who contend. The first comes before fewer threads if it may
            gain more than they do.
    """
    verdict = contended_verdict(evidence)
    if verdict is None:
        return None
    step, cost = evidence.step_ms, verdict.cost_ms_per_step or 0.0
    known = [action for action in actions if action.saves_ms][: MOST - 1]
    more = [in_words(action, step) for action in known if (action.saves_ms or 0.0) > cost]
    less = [in_words(action, step) for action in known if (action.saves_ms or 0.0) <= cost]
    verdict.next = [*more, *verdict.next, *less]
    return verdict
