"""Calls the rules and the verdict with evidence that a test made."""

from __future__ import annotations

from rankscope.causes.table import CAUSES
from rankscope.diagnose import verdict
from rankscope.diagnose.advice.table import advise
from rankscope.diagnose.base.decision import StragglerDecision, decide
from rankscope.diagnose.rules import table
from rankscope.records.evidence import Evidence
from rankscope.records.report import Finding, Verdict

ADVICE = {cause.name: list(cause.advice) for cause in CAUSES} | {
    r.kind: list(r.advice) for r in table.RULES if r.advice
}
PHRASE = {cause.name: cause.phrase for cause in CAUSES}


def find(evidence: Evidence) -> list[Finding]:
    return table.find(table.open_case(evidence))


def judge(evidence: Evidence) -> Verdict:
    case = table.open_case(evidence)
    return verdict.judge(case, advise(case))


def accuse(evidence: Evidence) -> list[StragglerDecision]:
    return decide(evidence)
