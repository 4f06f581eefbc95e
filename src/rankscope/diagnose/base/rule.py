"""Definition of a rule, what it may read, and what rules of one sort share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rankscope.causes.wording import amount, hours
from rankscope.diagnose.base.decision import StragglerDecision
from rankscope.records.evidence import Evidence
from rankscope.records.report import Confidence, Finding
from rankscope.records.rows import HealthRow

__all__ = ["Case", "Rule", "in_all_units", "job_finding", "state_finding", "with_peers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Input of every rule: the evidence, and the ranks that were decided to be stragglers."""

    evidence: Evidence
    stragglers: Sequence[StragglerDecision]
    """In order of cost, the largest first."""
    rules: Mapping[str, Rule] = field(repr=False)
    """Kind of finding -> the rule that makes it."""

    def findings(self, kind: str) -> list[Finding]:
        """Return the findings of the rule of one kind, so that another rule can refer to them."""
        rule = self.rules.get(kind)
        return rule.find(self) if rule is not None else []


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One kind of finding: its words, and the function that decides whether it exists."""

    kind: str
    """``finding.kind`` in report.json, which never changes. A rule whose findings have the names of causes has a kind
    that no finding has, and neither noun nor advice: both come from the cause."""
    noun: str = ""
    """The kind in a few words, without an article where it needs none: ``exposed communication``."""
    advice: tuple[str, ...] = ()
    """Recommended actions, the most promising first, in whole sentences. A finding without advice of its own gets
    these."""
    find: Callable[[Case], list[Finding]]

    def __post_init__(self) -> None:
        if bool(self.noun) != bool(self.advice) or not all(line.endswith(".") for line in self.advice):
            raise ValueError(f"{self.kind}: a kind has a noun and advice, and each line of advice is a sentence")


def job_finding(
    evidence: Evidence,
    kind: str,
    title: str,
    lines: list[str],
    confidence: Confidence,
    cost_ms: float | None = None,
) -> list[Finding]:
    """Return the one finding of a rule that concerns all ranks. Its kind is its anchor."""
    return [
        Finding(
            id=kind.replace("_", "-"),
            kind=kind,
            ranks=evidence.ranks,
            cost_ms_per_step=cost_ms,
            confidence=confidence,
            title=title,
            evidence=lines,
            advice=[],
        )
    ]


def in_all_units(gain_ms: float, evidence: Evidence) -> str:
    """Return a gain per step in all units that readers use: ms, per cent of the step, device hours."""
    gain = max(gain_ms, 0.0)
    share = 100 * gain / evidence.whole_step_ms
    of_the_day = hours(gain, evidence.whole_step_ms, len(evidence.ranks)) if evidence.device and share >= 1.0 else ""
    return f"{amount(gain)} ({share:.1f} %{of_the_day})"


def state_finding(kind: str, ranks: list[int], title: str, lines: list[str], confidence: Confidence) -> Finding:
    """Return a finding on the state of a machine. It has no cost of its own: the cost is that of the late rank."""
    return Finding(
        id=f"{kind}-rank-{ranks[0]}",
        kind=kind,
        ranks=ranks,
        cost_ms_per_step=None,
        confidence=confidence,
        title=title,
        evidence=lines,
        advice=[],
    )


def with_peers(evidence: Evidence, *, alone: bool = False) -> Iterable[tuple[HealthRow, list[HealthRow]]]:
    """Yield each health row with those of the other ranks that have a device of the same kind.

    Args:
        evidence: whose health rows are compared.
        alone: also yield rows that have no such peer.
    """
    for row in evidence.health:
        peers = [p for p in evidence.health if p is not row and p.device == row.device]
        if peers or alone:
            yield row, peers
