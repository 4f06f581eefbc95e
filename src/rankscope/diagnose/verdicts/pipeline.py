"""Pipeline stages, which have no peers: they wait for each other by schedule, or for the one that computes longest."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.causes.wording import amount, share, step_time, with_error
from rankscope.diagnose.base.advice import MOST, in_words
from rankscope.diagnose.base.schedule import idle_share
from rankscope.diagnose.base.stages import LongStage, long_stage
from rankscope.diagnose.rules.table import advice_of
from rankscope.diagnose.verdicts.smallest_fault import smallest_fault
from rankscope.records.evidence import Evidence
from rankscope.records.report import Action, Verdict

__all__ = ["pipeline", "uneven_stages"]


def uneven_stages(evidence: Evidence, actions: Sequence[Action]) -> Verdict | None:
    """Return the verdict that one stage computes longer than the others; None if that costs too little.

    No rank is named: a stage may have more layers by design.
    """
    found, step = long_stage(evidence), evidence.step_ms or 0.0
    if found is None:
        return None
    two = len(found.balance.stages) == 2
    others = "the other one" if two else "the others, in the median,"
    return Verdict(
        kind="pipeline",
        cost_ms_per_step=found.cost_ms,
        cost_error_ms=found.error_ms,
        confidence="medium",
        sure="the traces do not show whether its layers are the reason",
        step_ms=evidence.step_ms,
        sentence=f"Pipeline {found.name} computes {amount(found.own_ms)} a step, {others} {amount(found.others_ms)}: "
        f"at that level each {step_time(step)} step would save {with_error(found.cost_ms, found.error_ms)} "
        f"({share(found.cost_ms, step)}).",
        why=[*found.lines, _schedule(evidence)],
        next=[in_words(a, step) for a in actions][:MOST] or advice_of("uneven_stages"),
    )


def pipeline(evidence: Evidence, actions: Sequence[Action]) -> Verdict:
    """Stages wait for each other by schedule."""
    step = evidence.step_ms or 0.0
    lost = share(evidence.waiting_ms + evidence.host_ms + evidence.input_ms, step) if step else "part"
    waits = "The ranks are pipeline stages, which wait for each other by schedule"
    if step:
        waits += f": {lost} of each {step_time(step)} step passes in waiting and idle, on average"
    return Verdict(
        kind="pipeline",
        confidence="medium",
        sure=f"{evidence.steps} steps; the schedule{_unknown(evidence)} not in the traces",
        step_ms=evidence.step_ms,
        sentence=f"{waits}. No rank is to blame.",
        why=[*_longest(evidence), _schedule(evidence), smallest_fault(evidence)],
        next=[in_words(a, step) for a in actions][:MOST] or advice_of("pipeline_wait"),
    )


def _longest(evidence: Evidence) -> list[str]:
    """Return how long the ranks compute, and what less on the longest stage would gain."""
    times, balance = evidence.compute_ms, evidence.stages
    if balance is not None:
        found = LongStage(balance, balance.lowered_ms, balance.error_ms)
        gain = with_error(max(found.cost_ms, 0.0), found.error_ms)
        return [
            (
                f"{found.name.capitalize()} computes longest: {amount(found.own_ms)} a step, the median of the others "
                f"{amount(found.others_ms)}. At their level the step would save {gain}."
            )
        ]
    if len(times) < 2:
        return []
    longest, shortest = max(times, key=lambda r: times[r]), min(times, key=lambda r: times[r])
    return [
        (
            f"Rank {longest} computes longest: {amount(times[longest])} a step; rank {shortest} least: "
            f"{amount(times[shortest])}."
        )
    ]


def _schedule(evidence: Evidence) -> str:
    """Return how much of the step is idle by the schedule."""
    many, stages = evidence.micro_batches, len(evidence.compute_ms)
    if many is None or stages < 2:
        return (
            "Of p stages with m micro-batches, GPipe and 1F1B leave (p - 1) / (m + p - 1) idle even where all stages "
            "take equally long: evening them out gains only what is beyond that."
        )
    messages = f"{many} messages pass" if many > 1 else "1 message passes"
    batches = f"{many} micro-batches" if many > 1 else "1 micro-batch"
    return (
        f"{messages} between neighbours in a step, so {batches}: GPipe and 1F1B then leave "
        f"{100 * idle_share(stages, many):.0f} % idle ((p - 1) / (m + p - 1)), however even the stages are."
    )


def _unknown(evidence: Evidence) -> str:
    return " and its micro-batches are" if evidence.micro_batches is None else " itself is"
