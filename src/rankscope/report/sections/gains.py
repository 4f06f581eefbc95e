"""What the job's step would gain under other assumptions, by replay."""

from __future__ import annotations

from rankscope.records.report import ClusterReport
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, numbers, text
from rankscope.report.common.metrics import Metric
from rankscope.report.sections.base import Section, Variables, tables

__all__ = ["METRICS", "SECTION", "gains"]

METRICS: dict[str, Metric] = {
    "what_if": Metric(
        "Verdict and findings",
        "Gain",
        "ms per step",
        "What each step would shrink by if the recorded steps were replayed under this assumption.",
        "Assumptions are replayed one by one; their gains do not add up. Where it was measured, what recording adds "
        "to a step is taken off the gain of a faster host.",
    ),
    "what_if_pct": Metric("Verdict and findings", "Of the step", "%", "The gain divided by the job's step time."),
}


def gains(report: ClusterReport) -> Table:
    """Return what each step would gain by replay under other assumptions, most first."""
    items = sorted(report.what_if.items(), key=lambda item: -(item[1] or 0.0))
    step = report.verdict.step_ms
    shares = [words.share_of_step(gain, step) for _, gain in items]
    columns = [
        [text(words.scenario(name)) for name, _ in items],
        numbers([gain for _, gain in items]),
        numbers(shares, 0),
    ]
    heads = [Column("With"), metric(METRICS["what_if"]), metric(METRICS["what_if_pct"])]
    return Table("gains", heads, [Row(cells) for cells in assemble(columns)])


def _build(report: ClusterReport) -> Variables | None:
    lead = "By replay of the recorded steps, one assumption at a time: an upper bound for what each change can bring."
    return tables(lead, ("Gains by replay", gains(report))) if report.what_if else None


SECTION = Section("gains", "Gains", "What a change would gain", _build, METRICS)
