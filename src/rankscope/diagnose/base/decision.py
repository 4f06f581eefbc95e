"""When a candidate rank is a straggler. All thresholds of that decision are in this file."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.causes.table import DEVICE_CAUSES, NOISY
from rankscope.diagnose.base.contention import (
    BY_SILENCE,
    beyond_machine,
    is_contended,
    shares_cores,
    shares_device,
    without_machine,
)
from rankscope.records.evidence import Evidence, Suspect
from rankscope.records.report import Confidence
from rankscope.statistics.thresholds import LEAST_COST, LOSES, MATTERS, UNNAMED_COST

__all__ = ["CLEAR", "StragglerDecision", "decide", "slowed_by_others"]

SINGLE_EVENT_SHARE = 0.08
"""If the extra time is in few steps, it must cost at least this share to be distinguished from chance, and must have a
named cause."""
DOMINANCE = 2.0
"""A rank without a clear cause must cost this many times as much as the next one."""
NAMED = 0.5
"""Share of the extra time that a cause must explain to be named."""
CLEAR = 0.7
"""Share of the extra time from which on a cause needs no further proof."""
P_VALUE = 0.05
SURE = 0.1
"""With four steps, the least that a window should have, no p-value is below 1/16."""


@dataclass(frozen=True, slots=True)
class StragglerDecision:
    """A rank that costs the job step time, and why."""

    suspect: Suspect
    cause: str
    explained: float
    """Share of the extra time over the peers that the cause explains."""
    once: bool
    """Whether a single event, in one or few steps, makes up the loss."""
    confidence: Confidence


def decide(evidence: Evidence) -> list[StragglerDecision]:
    """Return the stragglers, in order of cost, the largest first. The result may be empty."""
    return [d for d in _decide(evidence) if not _is_others_doing(evidence, d)]


def slowed_by_others(evidence: Evidence) -> list[StragglerDecision]:
    """Return the ranks that would be in :func:`decide` if no process outside the job used their device or cores."""
    return [d for d in _decide(evidence) if _is_others_doing(evidence, d)]


def _is_others_doing(evidence: Evidence, decision: StragglerDecision) -> bool:
    """Return whether a shared device, or without devices a shared core, explains that the same work takes longer."""
    if decision.cause not in DEVICE_CAUSES & NOISY:
        return False
    suspect = decision.suspect
    return shares_device(evidence, suspect.rank) if evidence.device else shares_cores(evidence, suspect)


def _decide(evidence: Evidence) -> list[StragglerDecision]:
    if not evidence.step_ms:
        return []
    found = _decide_all(evidence, evidence.suspects)
    if evidence.contention is not None:
        found = _machine_taken_off(evidence, found)
    return sorted(found, key=lambda a: -a.suspect.cost_ms)


def _machine_taken_off(evidence: Evidence, found: list[StragglerDecision]) -> list[StragglerDecision]:
    """Return those of ``found`` that are late independent of contention, and those whose own part is significant."""
    late_anyway = _decide_all(evidence, [without_machine(s, evidence) for s in evidence.suspects])
    sure = {d.suspect.rank for d in late_anyway}
    kept = [d for d in found if d.suspect.rank in sure]
    asked = {d.suspect.rank for d in found} | set(evidence.ranks if is_contended(evidence) else ())
    for suspect in evidence.suspects:
        if suspect.rank not in asked - sure or suspect.excess_ms <= 0:
            continue
        if (own := beyond_machine(suspect, evidence)) is not None:
            cause, explained = leading_cause(own)
            kept.append(StragglerDecision(own, cause, min(explained, 1.0), False, "medium"))
    return kept


def _decide_all(evidence: Evidence, suspects: list[Suspect]) -> list[StragglerDecision]:
    found = []
    dearest = sorted((s.cost_ms for s in suspects), reverse=True)[:2]
    for suspect in suspects:
        if suspect.measured:
            if suspect.cost_ms - suspect.error_ms > _least(suspect, evidence) * evidence.whole_step_ms:
                found.append(_measured(suspect, evidence.whole_step_ms))
            continue
        others = dearest[1:] if suspect.cost_ms == dearest[0] else dearest[:1]
        decision = _decide_one(suspect, evidence.step_ms or 0.0, max(others, default=0.0), evidence.clock_spread_us)
        if decision is not None and not _may_be_recordings(evidence, decision):
            found.append(decision)
    return found + _alternating(evidence, suspects, {d.suspect.rank for d in found})


def _least(suspect: Suspect, evidence: Evidence) -> float:
    """Return the share of the step that a rank whose work was measured must cost.

    Without a device, a thread that does not get a CPU shows the same silence as one that stands still. If the scheduler
    was not asked, silence must cost as much as a rank that is only compared with its peers.
    """
    unknown = not evidence.device and evidence.contention is None
    return LEAST_COST if unknown and leading_cause(suspect)[0] in BY_SILENCE else MATTERS


def _may_be_recordings(evidence: Evidence, decision: StragglerDecision) -> bool:
    """Return whether recording may explain it: all work of a host is slower, by no more than recording adds to a step.

    Recording need not add the same on all ranks. Measured on two H200: a window took 31 ms a step, unrecorded steps 16;
    a host was late by 15 ms in the window, and no rank was in 100 steps around it.
    """
    suspect = decision.suspect
    by_itself = decision.cause in NOISY - DEVICE_CAUSES
    return by_itself and suspect.cost_ms - suspect.error_ms <= evidence.recording_ms


def _measured(suspect: Suspect, step_ms: float) -> StragglerDecision:
    """Decide on a rank whose whole work was measured: its cost and the interval of it are sufficient."""
    cause, explained = leading_cause(suspect)
    sure = suspect.cost_ms - suspect.error_ms > LEAST_COST * step_ms
    return StragglerDecision(suspect, cause, min(explained, 1.0), False, "high" if sure else "medium")


def _alternating(evidence: Evidence, suspects: list[Suspect], named: set[int]) -> list[StragglerDecision]:
    """Return ranks that alternate: late for one clear cause, each in too few steps to be decided alone.

    Together they are judged as one rank would be. Each must still cost as much as any single straggler.
    """
    step_ms = evidence.step_ms or 0.0
    by_cause: dict[str, list[tuple[Suspect, float]]] = {}
    for suspect in suspects:
        cause, explained = leading_cause(suspect)
        if cause not in NOISY and explained >= CLEAR and suspect.cost_ms >= LEAST_COST * step_ms:
            by_cause.setdefault(cause, []).append((suspect, explained))
    found = []
    for cause, members in by_cause.items():
        if len({len(s.gains_ms) for s, _ in members}) > 1:
            continue  # they are in different windows
        gains = [sum(step) for step in zip(*(s.gains_ms for s, _ in members), strict=True)]
        hit = sum(g > LOSES * step_ms for g in gains)
        often = hit >= 0.75 * len(gains) and max(gains) < 0.8 * sum(gains)
        if len(members) > 1 and often and sum(gains) >= 2.0 * SINGLE_EVENT_SHARE * step_ms * len(gains):
            found += [
                StragglerDecision(s, cause, min(e, 1.0), False, "medium") for s, e in members if s.rank not in named
            ]
    return found


def leading_cause(suspect: Suspect) -> tuple[str, float]:
    """Return the cause that explains most of the extra time, if it is enough to be named, and the share that it
    explains."""
    if not suspect.explained or suspect.excess_ms <= 0:
        return "unexplained", 0.0
    best = max(suspect.explained, key=lambda c: suspect.explained[c])
    explained = suspect.explained[best] / suspect.excess_ms
    return best if explained >= NAMED else "unexplained", explained


def _decide_one(suspect: Suspect, step_ms: float, next_cost: float, clock_us: float) -> StragglerDecision | None:
    share = suspect.cost_ms / step_ms
    if share < LEAST_COST or suspect.cost_ms < 3.0 * clock_us / 1000.0:
        return None
    cause, explained = leading_cause(suspect)
    gains = suspect.gains_ms
    hit = [g for g in gains if g > LOSES * step_ms]
    usual = len(hit) >= 0.5 * len(gains) and max(gains) < 0.8 * sum(gains)
    proven = len(gains) < 5 or (suspect.p_value is not None and suspect.p_value <= P_VALUE)
    dominant = suspect.cost_ms >= DOMINANCE * max(next_cost, 0.0)
    if cause in NOISY:
        if not (usual and proven and dominant and share >= UNNAMED_COST and len(hit) >= 0.75 * len(gains)):
            return None
    else:
        # A cause that explains nearly all of a large loss suffices, even if other ranks cost as much: faults may
        # alternate.
        clear = dominant or explained >= CLEAR
        if usual and not proven and not (clear and share >= UNNAMED_COST):
            return None
        if not usual and not (clear and share >= (SINGLE_EVENT_SHARE if dominant else 2.0 * SINGLE_EVENT_SHARE)):
            return None
    sure = (
        usual
        and (suspect.p_value or 1.0) <= SURE
        and share >= 0.1
        and explained >= 0.7
        and len(hit) >= 0.75 * len(gains)
    )
    confidence: Confidence = "high" if sure else "medium" if usual or share >= 0.1 else "low"
    return StragglerDecision(suspect, cause, min(explained, 1.0), not usual, confidence)
