"""The first line of the report: one verdict, why, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diagnose.base.rule import Case
from rankscope.diagnose.rules.machine.contended import beside_contention
from rankscope.diagnose.rules.ranks.missing_traces import verdict_beside_missing
from rankscope.diagnose.verdicts.abstain import abstain
from rankscope.diagnose.verdicts.busy_machine import busy_machine
from rankscope.diagnose.verdicts.no_straggler import no_straggler, pipeline, slow_group
from rankscope.diagnose.verdicts.straggler import straggler
from rankscope.records.report import Action, Verdict

__all__ = ["judge"]


def judge(case: Case, actions: Sequence[Action]) -> Verdict:
    """Return the verdict of a run. It abstains if the evidence is insufficient, and states what would decide it.

    Args:
        case: the evidence, and the stragglers.
        actions: recommended actions, for Next.
    """
    evidence = case.evidence
    thin = abstain(evidence, actions)
    if thin is not None:
        return beside_contention(thin, evidence)
    if case.stragglers:
        return straggler(case, actions)
    if evidence.pipeline:
        return busy_machine(evidence, actions) or pipeline(evidence, actions)
    return (
        verdict_beside_missing(case)
        or slow_group(evidence)
        or busy_machine(evidence, actions)
        or no_straggler(evidence, actions)
    )
