"""Ranks whose profiler lost device records, so that their numbers are incomplete."""

from __future__ import annotations

from rankscope.diagnose.base.rule import Case, Rule, state_finding
from rankscope.records.report import Finding

__all__ = ["RULE"]


def _find(case: Case) -> list[Finding]:
    evidence = case.evidence
    found = []
    for rank, words in sorted(evidence.incomplete.items()):
        lines = [f"Rank {rank}: {words}."]
        if rank in evidence.unsound:
            lines.append("It is compared with no other rank: what was lost would make the others seem slower.")
        found.append(state_finding("records_lost", [rank], f"Rank {rank}'s trace lost device records", lines, "high"))
    return found


RULE = Rule(
    kind="records_lost",
    noun="lost device records",
    advice=(
        "Record again with a warm-up step before the window: short windows lose records at their start.",
        "Record fewer steps at a time: long windows lose records when the profiler's buffers are full.",
        "Where all kernels are missing, check that no other profiler or debugger holds the device (CUPTI allows one).",
    ),
    find=_find,
)
