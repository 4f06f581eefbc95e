"""Stages of a pipeline: balance them, and give the schedule more to overlap."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.diagnose.base.advice import Advice, at_most
from rankscope.diagnose.base.rule import Case
from rankscope.diagnose.base.schedule import ENOUGH, even_gain_ms, more_gain_ms
from rankscope.diagnose.base.stages import long_stage
from rankscope.records.evidence import Evidence
from rankscope.records.report import Action

__all__ = ["ADVICE", "CODES"]

CODES = ("even_stages", "lighten_stage", "more_micro_batches")
"""Codes of these actions. In a pipeline they come first, though their gain may be unknown."""

UNEVEN = 1.05
"""Ratio of the longest stage's compute to the shortest one's from which on moving layers is worthwhile."""


def _find(case: Case) -> list[Action]:
    evidence = case.evidence
    if not evidence.pipeline:
        return _by_replay(evidence)
    many, times = evidence.micro_batches, evidence.compute_ms
    known = many is not None and len(times) > 1
    return [
        *(
            _by_replay(evidence)
            if evidence.stages is not None
            else _even(evidence, even_gain_ms(times.values(), many) if known and many else None)
        ),
        *_more(evidence, many if known else None),
        *_messages(evidence),
    ]


def _by_replay(evidence: Evidence) -> list[Action]:
    """Return what to do about the longest stage. Moving layers may gain less than a formula says, or nothing, where the
    schedule waits for the chain of all stages."""
    found = long_stage(evidence)
    if found is None:
        return []
    balance, check = found.balance, "compute per stage within 5 %"
    move = (
        f"Move layers from {found.name}, which computes {amount(found.own_ms)} a step, to "
        f"{found.named(balance.shortest)} ({amount(balance.stages[balance.shortest].ms)})."
    )
    less = f"Take work off {found.name}" + (f": it runs {found.more} a step." if found.more else ".")
    return [
        *at_most(evidence, "even_stages", move, min(balance.even_ms, found.cost_ms), check, found.ranks),
        *at_most(evidence, "lighten_stage", less, found.cost_ms, check, found.ranks),
    ]


def _even(evidence: Evidence, gain: float | None) -> list[Action]:
    times = evidence.compute_ms
    if len(times) < 2:
        return []
    longest, shortest = max(times, key=lambda r: times[r]), min(times, key=lambda r: times[r])
    if not times[longest] > UNEVEN * times[shortest] > 0:
        return []
    text = (
        f"Move layers from rank {longest}, which computes {amount(times[longest])} a step, to rank {shortest} "
        f"({amount(times[shortest])})."
    )
    check = "compute per stage within 5 %"
    if gain is None:
        return [Action(code="even_stages", text=text, ranks=[longest], check=check)]
    return at_most(evidence, "even_stages", text, gain, check, [longest])


def _more(evidence: Evidence, many: int | None) -> list[Action]:
    other = "an interleaved or zero-bubble schedule (torch.distributed.pipelining)"
    check = "idle share of the step"
    if many is None:
        text = f"Use more micro-batches per step, or {other}."
        return [Action(code="more_micro_batches", text=text, ranks=evidence.ranks, check=check)]
    stages = len(evidence.compute_ms)
    if many < ENOUGH * stages:
        then = ENOUGH * stages
        text = f"Use more micro-batches per step, {then} instead of {many}, or {other}."
    else:
        then = 2 * many
        text = f"Use {other}: with two stages on each rank, micro-batches count twice."
    gain = more_gain_ms(evidence.compute_ms.values(), many, then)
    return at_most(evidence, "more_micro_batches", text, gain, check)


def _messages(evidence: Evidence) -> list[Action]:
    text = (
        "Hide the messages between stages: neighbouring stages on one node, asynchronous sends and receives in one "
        "call (batch_isend_irecv)."
    )
    if evidence.network_gain_ms is None:
        return []
    gain = min(evidence.transfer_ms, evidence.network_gain_ms)
    return at_most(evidence, "hide_messages", text, gain, "transfer per step")


ADVICE = Advice(code="pipeline_schedule", find=_find)
