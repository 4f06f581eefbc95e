"""The whole run: a curve of step time with the windows marked, and a table of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from rankscope.records.from_script import RunMark
from rankscope.records.report import ClusterReport
from rankscope.records.run_steps import RunSteps, StepBucket
from rankscope.report.common import summary
from rankscope.report.common import wording as words
from rankscope.report.common.cells import Column, Row, Table, assemble, metric, number, numbers
from rankscope.report.common.metrics import Metric
from rankscope.report.common.section import Section, Variables
from rankscope.report.sections.ranks.marks import values_of

__all__ = ["METRICS", "SECTION", "chart", "rows"]

METRICS: dict[str, Metric] = {
    "pulse.step_ms": Metric(
        "Step times of the run",
        "Step in the curve",
        "ms",
        "Median over the ranks of their mean step among neighbouring steps; the curve has at most 400 points.",
        "All steps of the last attempt but its first, whose beginning nobody saw; recorded ones are in.",
    ),
    "pulse.slowest_ms": Metric(
        "Step times of the run", "Longest in the curve", "ms", "The longest single step of any rank among these."
    ),
    "pulse.input_ms": Metric(
        "Step times of the run",
        "Input in the curve",
        "ms",
        "Mean time in DataLoader.__next__ of the rank that waits most for it among these steps.",
    ),
    "pulse.typical": Metric(
        "Step times of the run",
        "Typical",
        "yes or no",
        "Whether the unprofiled steps around the windows take as long as those of the whole run: medians within 10 %.",
        "20 steps on either side of each window. Not said where these are more than half of the run.",
    ),
    "pulse.steps": Metric(
        "Step times of the run",
        "Unprofiled steps",
        "count",
        "Timed steps of the last attempt in which no rank recorded, warmed up or closed a window.",
    ),
    "pulse.median_ms": Metric(
        "Step times of the run",
        "Step time",
        "ms, median",
        "Time from the end of one step to the end of the next on this host, over the unprofiled steps.",
        "Where the host waits for its device only every so many steps, each counts as the mean of as many. Ranks in "
        "step wait for the slowest, so that all of them show its time.",
    ),
    "pulse.p99_ms": Metric(
        "Step times of the run", "Step time, p99", "ms", "99 % of the unprofiled steps are shorter."
    ),
    "pulse.longest_ms": Metric("Pulse", "Longest step", "ms", "The longest unprofiled step."),
    "pulse.longest_step": Metric(
        "Step times of the run", "Longest step is", "step", "The number of the longest unprofiled step, from 0."
    ),
    "pulse.drift_pct": Metric(
        "Step times of the run",
        "Drift",
        "%",
        "Median of the last quarter of the unprofiled steps against the median of the first.",
        "Not given below 40 steps.",
    ),
    "pulse.input_pct": Metric(
        "Step times of the run",
        "Input",
        "% of the time",
        "Share of the unprofiled steps' time spent in DataLoader.__next__.",
    ),
    "pulse.gc_ms_per_step": Metric(
        "Step times of the run",
        "Garbage collection",
        "ms per step",
        "What Python's garbage collector took of the unprofiled steps.",
    ),
}

LOG_ABOVE = 8.0
"""If the longest step exceeds this many medians, the scale is logarithmic, since one outlier would flatten the
curve."""
_NARROWEST = 0.3
"""Smallest width of a window in the chart, in per cent, at which it is visible."""
MOST_MARKS = 200
"""Marks of the script that are drawn."""
_INPUT_MATTERS = 0.01
"""The line of input is drawn if it reaches this share of a step."""


class Mark(NamedTuple):
    """A rectangle over the chart's whole height, in per cent of its width, and its label."""

    x: float
    width: float
    title: str


def rows(report: ClusterReport) -> Table:
    """One row a rank; columns that are empty for every rank are left out."""
    found = sorted(report.pulse.rows, key=lambda row: row.rank) if report.pulse else []
    heads = [Column("Rank", numeric=True), metric(METRICS["pulse.steps"])]
    columns = [[number(r.rank) for r in found], numbers([float(r.steps) for r in found], 0)]
    for name, decimals in (
        ("median_ms", None),
        ("p99_ms", None),
        ("longest_ms", None),
        ("longest_step", 0),
        ("drift_pct", 1),
        ("input_pct", 1),
        ("gc_ms_per_step", 2),
    ):
        values = [getattr(row, name) for row in found]
        if any(value is not None for value in values):
            heads.append(metric(METRICS[f"pulse.{name}"]))
            columns.append(numbers(values, decimals))
    return Table("pulse", heads, [Row(cells) for cells in assemble(columns)])


def chart(run_steps: RunSteps, of_script: Sequence[RunMark] = ()) -> dict[str, Any] | None:
    """Return paths in a box of 100 by 100, and marks and ticks in per cent; None if no step was timed."""
    timed = [b for b in run_steps.buckets if b.step_ms is not None and b.step_ms > 0]
    if not timed:
        return None
    steps = max(run_steps.steps, 1)
    highest = max(max(_slowest(b), b.step_ms or 0.0) for b in timed)
    means = sorted(b.step_ms or 0.0 for b in timed)
    logarithmic = highest > LOG_ABOVE * means[len(means) // 2]
    low, high = (means[0] / 1.3, highest * 1.15) if logarithmic else (0.0, highest * 1.08)

    def x(step: float) -> float:
        return round(min(max(step / steps * 100, 0.0), 100.0), 3)

    def y(value: float) -> float:
        if logarithmic:
            share = math.log(max(value, low) / low) / math.log(high / low)
        else:
            share = value / high
        return round(100 - min(max(share, 0.0), 1.0) * 100, 2)

    def middle(bucket: StepBucket) -> float:
        return round(x((bucket.first + bucket.last + 1) / 2), 2)

    pieces = [list(piece) for known, piece in groupby(run_steps.buckets, lambda b: (b.step_ms or 0.0) > 0) if known]
    has_input = any((b.input_ms or 0.0) > _INPUT_MATTERS * (b.step_ms or 0.0) for b in timed) and not logarithmic
    return {
        "band": [_band(piece, middle, y) for piece in pieces],
        "mean": [_line([(middle(b), y(b.step_ms or 0.0)) for b in piece]) for piece in pieces],
        "input": [_line([(middle(b), y(b.input_ms or 0.0)) for b in piece]) for piece in pieces] if has_input else [],
        "windows": [_window(w.first, w.last, x) for w in run_steps.windows],
        "marks": [_line_of(mark, x) for mark in of_script if mark.attempt == run_steps.attempt][:MOST_MARKS],
        "points": {"steps": steps, "of": [_described(b) for b in timed]},
        "ticks": [(y(value), f"{value:,.6g} ms") for value in _ticks(low, high, logarithmic)],
        "steps": [(x(step), f"{step:,}") for step in (0, steps // 4, steps // 2, 3 * steps // 4)],
        "last": f"{steps - 1:,}",
        "logarithmic": logarithmic,
    }


def _slowest(bucket: StepBucket) -> float:
    return max(bucket.slowest_ms or 0.0, bucket.step_ms or 0.0)


def _line(points: Sequence[tuple[float, float]]) -> str:
    if len(points) == 1:  # a path of one point is invisible
        points = [(points[0][0] - 0.1, points[0][1]), (points[0][0] + 0.1, points[0][1])]
    return "M" + "L".join(f"{px:g},{py:.1f}" for px, py in points)


def _band(piece: Sequence[StepBucket], middle: Callable[[StepBucket], float], y: Callable[[float], float]) -> str:
    upper = [(middle(b), y(_slowest(b))) for b in piece]
    lower = [(middle(b), y(b.step_ms or 0.0)) for b in reversed(piece)]
    return _line([*upper, *lower]) + "Z"


def _window(first: int, last: int, x: Callable[[float], float]) -> Mark:
    start, end = x(first), x(last + 1)
    spare = max(_NARROWEST - (end - start), 0.0)
    return Mark(
        round(start - spare / 2, 3),
        round(end - start + spare, 3),
        f"recording, warm-up included: steps {first:,} to {last:,}",
    )


def _line_of(mark: RunMark, x: Callable[[float], float]) -> Mark:
    said = values_of(mark)
    return Mark(x(mark.step + 0.5), 0.0, f"step {mark.step:,}: {mark.name}" + (f" ({said})" if said else ""))


def _described(bucket: StepBucket) -> list[Any]:
    """Return first and last step, their time in ms; the longest step and its rank; the most input and its rank."""
    found: list[Any] = [bucket.first, bucket.last, words.ms(bucket.step_ms, "")]
    for value, rank in ((bucket.slowest_ms, bucket.slowest_rank), (bucket.input_ms, bucket.input_rank)):
        found += ["", ""] if value is None or rank is None else [words.ms(value, ""), rank]
    return found


def _ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    """Return three to six round values."""
    if not logarithmic:
        unit = 10.0 ** math.floor(math.log10(high / 3))
        step = next(unit * factor for factor in (1, 2, 5, 10) if high / (unit * factor) <= 5.5)
        return [step * index for index in range(int(high / step) + 1)]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 1000 else (1,)
    return [factor * 10.0**power for power in powers for factor in factors if low <= factor * 10.0**power <= high][:12]


def _build(report: ClusterReport) -> Variables | None:
    if report.pulse is None or not report.pulse.buckets:
        return None
    line = summary.run_steps_line(report)
    drawn = chart(report.pulse, report.marks)
    lead = "Step time of the whole last attempt, recorded or not, as each host saw it."
    if drawn and drawn["logarithmic"]:
        lead += " The scale is logarithmic."
    return {
        "lead": f"{lead} {line[0].upper()}{line[1:]}." if line else lead,
        "spoken": line or "",
        "chart": drawn,
        "notes": report.pulse.notes,
        "table": rows(report),
    }


SECTION = Section("pulse", "Step times", "Step times of the run", _build, METRICS, "pulse.html.j2", optional=True)
