"""Patterns over the whole run, from the log of all steps."""

from __future__ import annotations

from rankscope.listing import named_ranks
from rankscope.records.report import ClusterReport
from rankscope.records.running.between import BetweenVerdict, SlowPattern
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "patterns"]

METRICS: dict[str, Metric] = {
    "between.size_ms": Metric(
        "Between windows",
        "Late by",
        "ms, median",
        "How much later than the median of its peers such a rank is in such a step, as far as the peers wait for it.",
        "Own time only: from the end of one backward to where the ranks meet again. Time in which the thread could run "
        "and was not let is no lateness.",
    ),
    "between.cost_ms": Metric(
        "Between windows",
        "Cost",
        "ms per step",
        "What a step would gain, on average over all compared steps, if such a rank were no later than the next.",
        "The error is the standard error over blocks of 25 steps or a period. Recorded steps, those with an evaluation "
        "or a checkpoint, the next after either and the first ten are not compared.",
    ),
    "between.seen": Metric(
        "Between windows", "Seen", "steps", "Steps of the pattern in which the rank was late, of all that it has."
    ),
    "between.p_value": Metric(
        "Between windows",
        "Chance",
        "probability",
        "That a pattern so clear is seen where there is none, over all ranks, periods and places that were looked at.",
    ),
}


def patterns(between: BetweenVerdict) -> Table:
    """One row a pattern, most costly first."""
    found = between.patterns
    heads = [
        Column("Who"),
        Column("Which steps"),
        Column("Where"),
        metric(METRICS["between.size_ms"]),
        metric(METRICS["between.cost_ms"]),
        metric(METRICS["between.seen"]),
        metric(METRICS["between.p_value"]),
    ]
    columns = [
        [text(named_ranks(p.ranks) if p.ranks else "all ranks alike") for p in found],
        [text(_steps(p)) for p in found],
        [text((_PLACES.get(p.place, p.place) or words.DASH) + (", on the CPU" if p.cpu else "")) for p in found],
        numbers([p.size_ms for p in found]),
        [text(words.plus_minus(p.cost_ms, p.error_ms, "")) for p in found],
        [text(f"{p.seen} of {p.of}") for p in found],
        [text(_chance(p.p_value)) for p in found],
    ]
    return Table("between", heads, [Row(cells) for cells in assemble(columns)])


def _chance(p_value: float | None) -> str:
    if p_value is None:
        return words.DASH
    return f"{p_value:.0e}" if p_value >= 1e-9 else "below 1e-9"


_PLACES = {"input": "data loader", "gc": "garbage collector", "before": "before forward", "after": "after backward"}


def _steps(pattern: SlowPattern) -> str:
    since = f"from {pattern.first:,} on"
    regular = f"every {pattern.period} steps, from {pattern.first:,}" if pattern.period else f"{pattern.seen} steps"
    return {
        "always": "all",
        "every": regular,
        "since": since,
        "drifting": f"{since}, more and more",
        "spell": f"{pattern.first:,} to {pattern.last or 0:,}",
        "bursts": f"now and then, {pattern.seen}",
        "turns": f"in turns, {regular}",
        "stall": f"{pattern.first:,}"
        if pattern.seen == 1
        else f"{pattern.seen} single ones, from {pattern.first:,} on",
        "checkpoint": f"checkpoint, {regular}",
        "evaluation": f"evaluation, {regular}",
    }[pattern.kind]


def _build(report: ClusterReport) -> Variables | None:
    between = report.verdict.between
    if between is None or between.kind == "insufficient_data":
        return None
    lead = (
        f"{between.sentence} So says the log of all steps: {between.steps:,} steps of {words.ms(between.step_ms)} "
        "(median) were compared."
    )
    lead = " ".join(filter(None, (lead, between.window, *(f"{note[0].upper()}{note[1:]}." for note in between.notes))))
    return tables(lead, ("Patterns", patterns(between)))


SECTION = Section("between", "Between", "Between windows", _build, METRICS, optional=True)
