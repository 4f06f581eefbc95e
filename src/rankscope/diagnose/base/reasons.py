"""Possible reasons for a cause: findings on the state of the late rank's device and host."""

from __future__ import annotations

import statistics

from rankscope.causes.base import GARBAGE_COLLECTION
from rankscope.causes.wording import amount, cause_record
from rankscope.diagnose.base.rule import Case
from rankscope.records.evidence import Evidence

__all__ = ["reasons"]

PAUSES_MS = 1.0
"""Per step. Collections of young objects take microseconds."""
OWN_THREADS = 0.5
"""Share of the cost from which on the CPU time of the script's other threads can be the reason: they occupy a core, or
hold the GIL, while they run."""


def reasons(case: Case, rank: int, cause: str) -> list[str]:
    """Return the reasons for a rank's lateness that the state of its device and host shows, in sentences.

    A state that all ranks share is not a reason for one of them to be late.
    """
    behind = cause_record(cause).behind
    found = [finding for kind in behind for finding in case.findings(kind)]
    own = [f for f in found if rank in f.ranks and len(f.ranks) < len(case.evidence.health)]
    collector = _collector(case.evidence, rank) if GARBAGE_COLLECTION in behind else []
    return [f"Likely reason: {f.title}. {f.evidence[0]}" for f in own] + collector + _threads(case.evidence, rank)


def _threads(evidence: Evidence, rank: int) -> list[str]:
    witness = evidence.contention
    cpu = None if witness is None else witness.of(rank)
    cost = next((s.cost_ms for s in evidence.suspects if s.rank == rank), 0.0)
    if witness is None or cpu is None or not cpu.script_ms or len(witness.ranks) < 2:
        return []
    own = statistics.fmean(cpu.script_ms)
    usual = statistics.median(statistics.fmean(r.script_ms or [0.0]) for r in witness.ranks if r is not cpu)
    if cost <= 0 or own - usual < OWN_THREADS * cost:
        return []
    ran = f"{amount(own)} of CPU per step there, {amount(usual)} on its peers"
    return [f"Likely reason: other threads of its script use {ran}."]


def _collector(evidence: Evidence, rank: int) -> list[str]:
    own = next((r.gc_ms_per_step for r in evidence.health if r.rank == rank), None)
    others = [r.gc_ms_per_step for r in evidence.health if r.rank != rank and r.gc_ms_per_step is not None]
    if own is None or not others or own - (usual := statistics.median(others)) < PAUSES_MS:
        return []
    return [f"Likely reason: garbage collection takes {amount(own)} per step there, {amount(usual)} on its peers."]
