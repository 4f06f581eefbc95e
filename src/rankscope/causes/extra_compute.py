"""Cause: the rank runs operators that its peers do not run, or runs them more often."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.causes.base import Cause, Facts, WorkComparison, WorkExample

__all__ = ["CAUSE"]


def _more_work(work: WorkComparison) -> bool:
    return work.extra_operators > max(0.02 * work.operators, 2)


_ADVICE = (
    "Find the operators that no other rank runs (evaluation, logging, a branch on rank); move them out of the step.",
)


def _advise(facts: Facts) -> Sequence[str]:
    if not facts.operator or facts.extra_calls < 1:
        return [*([f"Look at {facts.line} first."] if facts.line else []), *_ADVICE]
    where = f" from {facts.line}" if facts.line else ""
    return [f"Take the {facts.extra_calls:.0f} extra calls of {facts.operator}{where} out of the step, or share them."]


CAUSE = Cause(
    name="extra_compute",
    phrase="it runs work the other ranks do not",
    noun="work the others do not run",
    advice=_ADVICE,
    advise=_advise,
    check="as many operators a step as on its peers",
    first_try="a branch on the rank: evaluation, logging, checkpoints",
    needs=("cpu_op",),
    planted_by="demo: extra_compute",
    more_work=_more_work,
    examples=(
        WorkExample(claims=True, extra_operators=10),
        WorkExample(claims=False, extra_operators=2),
    ),
)
