"""Sentences about the log of all steps."""

from __future__ import annotations

from rankscope.causes.wording import amount
from rankscope.listing import named_ranks
from rankscope.records.running.between import OCCASIONS, BetweenVerdict, SlowPattern

__all__ = ["conclude", "describe", "slower_for_a_while"]

PLACES = {
    "input": "in the data loader",
    "gc": "in Python's garbage collector",
    "before": "before the forward, not in the data loader",
    "forward": "in the forward",
    "backward": "in the backward",
    "after": "between the backward and the end of the step",
}


def describe(pattern: SlowPattern, step_ms: float) -> str:
    """Describe a pattern in one sentence: who, when, where, and its cost."""
    share = f"{100 * pattern.cost_ms / step_ms:.1f} %" if step_ms else "unknown"
    cost = f"{amount(pattern.cost_ms)} a step on average ({share})"
    many = len(pattern.ranks) > 1
    who = named_ranks(pattern.ranks).capitalize() if pattern.ranks else "All ranks alike"
    late = f"{amount(pattern.size_ms)} late"
    where = ", ".join(filter(None, (PLACES.get(pattern.place, ""), "busy on the CPU" if pattern.cpu else "")))
    where = f", {where}" if where else ""
    number = _ordinal(pattern.period or 0)
    if pattern.kind in OCCASIONS:
        what = "a checkpoint" if pattern.kind == "checkpoint" else "an evaluation"
        by = f" of {named_ranks(pattern.ranks)}" if pattern.ranks else ""
        when = f"every {number} step" if pattern.period else f"{pattern.seen} time{'s' if pattern.seen > 1 else ''}"
        return f"{what.capitalize()}{by}, {when}, takes {amount(pattern.size_ms)}: {cost}."
    if pattern.kind == "stall":
        steps = f"step {pattern.first:,}"
        if pattern.seen > 1:
            steps = f"{pattern.seen} single steps between {pattern.first:,} and {pattern.last or 0:,}"
        return f"{who} was {late} in {steps}{where}; {cost}."
    if pattern.kind == "turns":
        return (
            f"{who} take turns: each is {late} in every {number} step{where}, seen {pattern.seen} of {pattern.of} "
            f"times; {cost}."
        )
    if not pattern.ranks:
        return f"Every {number} step takes {amount(pattern.size_ms)} longer on all ranks alike; {cost}."
    verb = "are" if many else "is"
    when = {
        "always": "in all steps",
        "every": f"in every {number} step, seen {pattern.seen} of {pattern.of} times",
        "since": f"from step {pattern.first:,} on",
        "drifting": f"from step {pattern.first:,} on, more and more",
        "spell": f"from step {pattern.first:,} to {pattern.last or 0:,}",
        "bursts": f"now and then, in {pattern.seen} steps",
    }[pattern.kind]
    return f"{who} {verb} {late} {when}{where}; {cost}."


def slower_for_a_while(pattern: SlowPattern) -> str:
    """Describe a rank whose CPU was slower for a stretch of steps, without blame."""
    when = f"from step {pattern.first:,} " + ("on" if pattern.last is None else f"to {pattern.last:,}")
    return (
        f"all work of {named_ranks(pattern.ranks)} took more CPU time {when}, {amount(pattern.size_ms)} a step: "
        "its core was slower, or had other work as well"
    )


def conclude(verdict: BetweenVerdict) -> BetweenVerdict:
    """Set the sentence of the verdict and return it."""
    if verdict.kind == "insufficient_data":
        verdict.sentence = f"Too few steps for a verdict between windows: {verdict.steps} can be compared."
    elif verdict.patterns and verdict.kind != "contended":
        verdict.sentence = verdict.patterns[0].sentence
        if verdict.patterns[0].kind == "stall":
            verdict.sentence = f"No rank stands out in {verdict.steps:,} steps, but in single ones: {verdict.sentence}"
        for pattern in verdict.patterns:
            if verdict.ranks and set(pattern.ranks) & set(verdict.ranks) and pattern.accuses:
                verdict.sentence = pattern.sentence
                break
    elif verdict.kind == "contended":
        verdict.sentence = (
            f"No rank stands out in {verdict.steps:,} steps; the machine was busy and held the ranks up for "
            f"{amount(verdict.held_ms or 0.0)} of each {amount(verdict.step_ms or 0.0)} step."
        )
    else:
        verdict.sentence = f"No rank stands out in {verdict.steps:,} steps."
    return verdict


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
