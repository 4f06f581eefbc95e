"""Findings as cards, each with an anchor of its own."""

from __future__ import annotations

import re
from typing import NamedTuple

from rankscope.records.report import ClusterReport, Finding
from rankscope.report.common import wording as words

__all__ = ["LEVELS", "Card", "cards"]

LEVELS = {"low": 1, "medium": 2, "high": 3}
"""Confidence -> filled dots of three."""


class Card(NamedTuple):
    """One finding as it is shown."""

    anchor: str
    finding: Finding
    cost: str
    gain: str
    level: int


def cards(report: ClusterReport) -> list[Card]:
    """One card a finding, in the report's order. Anchors are unique and safe in a URL."""
    found: list[Card] = []
    taken: set[str] = set()
    for finding in report.findings:
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", finding.id).strip("-")[:60] or "x"
        anchor = f"finding-{stem}"
        while anchor in taken:
            anchor += "-again"
        taken.add(anchor)
        cost = words.ms(finding.cost_ms_per_step) if finding.cost_ms_per_step is not None else ""
        gain = words.gain(finding, report.verdict.step_ms)
        found.append(Card(anchor, finding, cost, gain, LEVELS.get(finding.confidence, 1)))
    return found
