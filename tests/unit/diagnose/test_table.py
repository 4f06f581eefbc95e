"""Every rule is in the table with its wording, and one that fails affects only its own findings."""

from __future__ import annotations

import dataclasses
import pkgutil
from importlib import import_module

import pytest

from rankscope.causes.base import GARBAGE_COLLECTION
from rankscope.causes.table import BY_NAME, OURS
from rankscope.causes.wording import cause_record
from rankscope.diagnose import rules
from rankscope.diagnose.advice.table import advise
from rankscope.diagnose.base.rule import Case, Rule
from rankscope.diagnose.rules import table
from rankscope.diagnose.verdict import judge
from rankscope.records.evidence import Evidence, Suspect
from rankscope.report.common import wording


def late(cause: str) -> Evidence:
    gains = [20.0] * 6
    suspect = Suspect(rank=1, cost_ms=20.0, error_ms=1.0, gains_ms=gains, p_value=0.02, excess_ms=20.0)
    suspect.explained = {cause: 18.0}
    return Evidence(
        ranks=[0, 1], steps=6, step_ms=100.0, calls=60, matched_pct=100.0, overlap_pct=80.0, suspects=[suspect]
    )


def test_each_file_of_the_folder_is_in_the_table_once() -> None:
    below = pkgutil.walk_packages(rules.__path__, "rankscope.diagnose.rules.")
    modules = [import_module(m.name) for m in below if not m.ispkg]
    found = [module.RULE for module in modules if hasattr(module, "RULE")]
    assert sorted(rule.kind for rule in found) == sorted(rule.kind for rule in table.OURS)
    assert all(rule in table.OURS for rule in found)


@pytest.mark.parametrize("rule", table.OURS, ids=lambda r: r.kind)
def test_no_finding_has_a_kind_without_a_name(rule: Rule) -> None:
    # a rule without a noun reports causes, which bring their own words
    assert rule.kind not in BY_NAME
    assert bool(rule.noun) == bool(rule.advice)
    if rule.noun:
        assert wording.cause(rule.kind) == rule.noun
        assert table.advice_of(rule.kind) == list(rule.advice)


@pytest.mark.parametrize("words", [{"noun": "x"}, {"advice": ("Do it.",)}, {"noun": "x", "advice": ("do it",)}])
def test_half_a_rule_is_refused(words) -> None:
    with pytest.raises(ValueError, match="new_kind"):
        Rule(kind="new_kind", find=lambda _case: [], **words)


def test_reasons_of_a_cause_are_kinds_of_findings() -> None:
    kinds = {kind for cause in OURS for kind in cause.behind}
    assert kinds <= set(table.BY_KIND) | {GARBAGE_COLLECTION}
    assert all(table.BY_KIND[kind].noun for kind in kinds - {GARBAGE_COLLECTION})


def test_a_cause_that_no_table_holds_costs_neither_the_verdict_nor_the_findings() -> None:
    case = table.open_case(late("renamed_long_ago"))
    (finding,) = table.find(case)
    verdict = judge(case, advise(case))
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("straggler", [1], "renamed_long_ago")
    assert finding.advice == list(cause_record("unexplained").advice)
    assert verdict.next[0].startswith(finding.advice[0])


def test_a_rule_that_fails_costs_its_own_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_case: Case):
        raise RuntimeError("no luck")

    broken = dataclasses.replace(table.BY_KIND["comm_exposed"], find=fail)
    monkeypatch.setattr(table, "RULES", (broken, *(r for r in table.RULES if r.kind != "comm_exposed")))
    failures = []
    found = table.find(table.open_case(late("input_stall")), lambda kind, error: failures.append((kind, str(error))))
    assert [f.kind for f in found] == ["input_stall"]
    assert failures == [("comm_exposed", "no luck")]
    with pytest.raises(RuntimeError, match="no luck"):
        table.find(table.open_case(late("input_stall")))
