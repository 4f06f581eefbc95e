"""The first line of the report: one verdict, why, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diagnose.base.rule import Case
from rankscope.diagnose.rules.machine.contended import beside_contention
from rankscope.diagnose.rules.ranks.missing_traces import verdict_beside_missing
from rankscope.diagnose.verdicts.abstain import abstain
from rankscope.diagnose.verdicts.busy_machine import busy_machine
from rankscope.diagnose.verdicts.no_straggler import no_straggler, slow_group
from rankscope.diagnose.verdicts.pipeline import pipeline, uneven_stages
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
    others = _of_all_ranks(case, actions)
    uneven = uneven_stages(evidence, actions)
    if others is not None and uneven is not None:
        return max(others, uneven, key=lambda verdict: verdict.cost_ms_per_step or 0.0)
    return others or uneven or (pipeline if evidence.pipeline else no_straggler)(evidence, actions)


def _of_all_ranks(case: Case, actions: Sequence[Action]) -> Verdict | None:
    """Return what holds the job up without a late rank, if that is known to cost time."""
    evidence = case.evidence
    beside_missing = None if evidence.pipeline else verdict_beside_missing(case)
    return beside_missing or slow_group(evidence) or busy_machine(evidence, actions)
