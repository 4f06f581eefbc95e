"""Findings as cards, each with its own anchor."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from rankscope.causes.wording import amount
from rankscope.records.report import ClusterReport, Finding
from rankscope.report.common import wording as words
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables

__all__ = ["LEVELS", "METRICS", "SECTION", "Card", "cards", "costs_nothing", "shown_findings"]

METRICS: dict[str, Metric] = {
    "cost_ms_per_step": Metric(
        "Verdict and findings",
        "Cost",
        "ms per step",
        "What the job's step would shrink by without the cause.",
        "An estimate of the gain, not the time that ranks wait: waiting that overlaps useful work costs nothing.",
        "HTA's potential stragglers are always as many as were asked for, late or not, and come without a cost.",
    ),
    "cost_error_ms": Metric(
        "Verdict and findings", "Cost error", "ms per step", "The uncertainty of the cost, plus or minus."
    ),
    "cost_share": Metric("Verdict and findings", "Share of the step", "%", "The cost divided by the job's step time."),
    "share_of_steps_pct": Metric(
        "Verdict and findings",
        "Steps that lose time",
        "% of recorded steps",
        "Steps that would shrink by more than 2 % without the cause.",
        "Few steps and a high cost are an episode, not a habit.",
    ),
    "job_step_ms": Metric(
        "Verdict and findings",
        "Step time",
        "ms",
        "The job's step time that the cost refers to.",
        "The median of unrecorded steps where the run's step log has enough of them, else the mean recorded step.",
    ),
    "confidence": Metric(
        "Verdict and findings",
        "Confidence",
        "high, medium or low",
        "How sure the diagnosis is that the cause and the rank are right.",
        "It says nothing about the size of the cost; the cost error does.",
    ),
    "p_value": Metric(
        "Verdict and findings",
        "p-value",
        "0 to 1",
        "How often chance alone would make one rank look as late as this.",
    ),
}

LEVELS = {"low": 1, "medium": 2, "high": 3}
"""Confidence -> number of filled dots, of three."""


class Card(NamedTuple):
    """One finding as displayed."""

    anchor: str
    finding: Finding
    cost: str
    gain: str
    level: int


def shown_findings(report: ClusterReport) -> list[Finding]:
    """Return the findings that are not the verdict's own, and have a cost or state none. Ranks that are late in one way
    are one finding."""
    cheap = {id(finding) for finding in costs_nothing(report)}
    return _together([f for f in report.findings if id(f) not in cheap and not _is_verdict(report, f)])


def _together(findings: list[Finding]) -> list[Finding]:
    """Combine findings that are the same but for their rank, in the place of the first, which costs most."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        one = len(finding.ranks) == 1 and finding.cost_ms_per_step is not None
        alike.setdefault((finding.kind, *finding.advice) if one else (id(finding),), []).append(finding)
    return [_as_one(same) if len(same) > 1 else same[0] for same in alike.values()]


def _as_one(same: list[Finding]) -> Finding:
    ranks = sorted(rank for finding in same for rank in finding.ranks)
    costs = [finding.cost_ms_per_step or 0.0 for finding in same]
    title = f"{len(same)} ranks are late: {words.cause(same[0].kind)}"
    of_each = f"Each of them costs {amount(min(costs))} to {amount(max(costs))}, which do not add up."
    first = f"What follows is said of rank {same[0].ranks[0]}, the costliest of them."
    return replace(same[0], ranks=ranks, title=title, evidence=[of_each, first, *same[0].evidence])


def costs_nothing(report: ClusterReport) -> list[Finding]:
    """Return the findings that cost less than one per cent of a step."""
    least = (report.verdict.step_ms or 0.0) / 100
    return [f for f in report.findings if f.cost_ms_per_step is not None and f.cost_ms_per_step < least]


_SAME = {
    "host_bound": ("host_bound", "launch_bound"),
    "comm_bound": ("comm_exposed",),
    "pipeline": ("pipeline_wait", "uneven_stages"),
    "contended": ("contended",),
}
"""Verdict -> kinds of findings with the same content."""


def _is_verdict(report: ClusterReport, finding: Finding) -> bool:
    verdict = report.verdict
    if finding.kind in _SAME.get(verdict.kind, ()):
        return True
    if finding.kind != verdict.cause:
        return False
    if any(a.kind == "replay" and len(a.ranks) > 1 and set(a.ranks) == set(verdict.ranks) for a in report.actions):
        return set(finding.ranks) <= set(verdict.ranks)  # it is on all of them together
    return finding.ranks == verdict.ranks[:1] and finding.cost_ms_per_step == verdict.cost_ms_per_step


def cards(report: ClusterReport) -> list[Card]:
    """Return one card per finding, in the report's order. Anchors are unique and valid in a URL."""
    found: list[Card] = []
    taken: set[str] = set()
    for finding in shown_findings(report):
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", finding.id).strip("-")[:60] or "x"
        anchor = f"finding-{stem}"
        while anchor in taken:
            anchor += "-again"
        taken.add(anchor)
        cost = amount(finding.cost_ms_per_step) if finding.cost_ms_per_step is not None else ""
        gain = words.gain(finding, report.verdict.step_ms)
        found.append(Card(anchor, finding, cost, gain, LEVELS.get(finding.confidence, 1)))
    return found


def _build(report: ClusterReport) -> Variables | None:
    found = cards(report)
    also = [f"{f.title} ({amount(f.cost_ms_per_step or 0.0)})" for f in costs_nothing(report)]
    return {"cards": found, "also": also} if found or also else None


SECTION = Section("findings", "Findings", "Also found", _build, METRICS, "findings.html.j2")
