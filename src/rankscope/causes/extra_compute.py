"""Operators that the peers do not run, or fewer of."""

from __future__ import annotations

from rankscope.causes.base import Cause, WorkComparison, WorkExample

__all__ = ["CAUSE"]


def _more_work(work: WorkComparison) -> bool:
    return work.extra_operators > max(0.02 * work.operators, 2)


CAUSE = Cause(
    name="extra_compute",
    phrase="it runs work the other ranks do not",
    noun="work the others do not run",
    advice=(
        "Find the operators only this rank runs (evaluation, logging, a branch on rank); move them out of the step.",
    ),
    first_try="a branch on the rank: evaluation, logging, checkpoints",
    needs=("cpu_op",),
    planted_by="demo: extra_compute",
    more_work=_more_work,
    examples=(
        WorkExample(claims=True, extra_operators=10),
        WorkExample(claims=False, extra_operators=2),
    ),
)
