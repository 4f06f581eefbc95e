"""The curve of step times is at its numbers; unmeasured parts are gaps."""

from __future__ import annotations

import re

import pytest

from rankscope.records.report import ClusterReport
from rankscope.records.run_steps import RankStepTimes, RecordedRange, RunSteps, StepBucket
from rankscope.report.common import summary
from rankscope.report.formats import html, markdown, terminal
from rankscope.report.sections.ranks import run_steps as page


def made(*means: float | None, longest: float = 0.0) -> RunSteps:
    """One bucket a step."""
    buckets = [
        StepBucket(first=step, last=step, step_ms=mean, slowest_ms=None if mean is None else max(mean, longest))
        for step, mean in enumerate(means)
    ]
    return RunSteps(attempt=0, steps=len(means), buckets=buckets)


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", path)]


def test_the_curve_is_linear_from_zero() -> None:
    chart = page.chart(made(50.0, 100.0, 100.0, 50.0))
    assert chart is not None
    (line,) = chart["mean"]
    # the middles of four steps; 100 ms of 108 ms, half of it above and below
    assert points(line) == [(12.5, 53.7), (37.5, 7.4), (62.5, 7.4), (87.5, 53.7)]
    assert [label for _, label in chart["ticks"]] == ["0 ms", "20 ms", "40 ms", "60 ms", "80 ms", "100 ms"]
    assert chart["ticks"][-1][0] == 7.41
    assert (chart["logarithmic"], chart["input"]) == (False, [])


def test_an_outlier_makes_the_scale_logarithmic_and_stays_inside() -> None:
    chart = page.chart(made(20.0, 20.0, 20.0, 5000.0))
    assert chart is not None
    assert chart["logarithmic"]
    heights = [y for _, y in points(chart["mean"][0])]
    assert heights[0] == heights[2] > heights[3] > 0
    assert "1,000 ms" in [label for _, label in chart["ticks"]]
    assert heights[0] < 100, "the usual steps are off the floor"


def test_a_gap_is_a_gap() -> None:
    chart = page.chart(made(None, 10.0, 10.0, None, 10.0))
    assert chart is not None
    assert [len(points(line)) for line in chart["mean"]] == [2, 2]
    assert [(first, last) for first, last, *_ in chart["points"]["of"]] == [(1, 1), (2, 2), (4, 4)]
    assert page.chart(made(None, None)) is None


def test_a_window_of_one_step_in_many_can_be_seen() -> None:
    record = made(*[10.0] * 10)
    record.steps, record.windows = 100_000, [RecordedRange(first=50_000, last=50_004)]
    chart = page.chart(record)
    assert chart is not None
    (mark,) = chart["windows"]
    assert mark.width == pytest.approx(0.3)
    assert mark.x + mark.width / 2 == pytest.approx(50.0025, abs=0.002)
    assert mark.title == "recording, warm-up included: steps 50,000 to 50,004"


def test_rows(gpu_straggler: ClusterReport) -> None:
    table = page.rows(gpu_straggler)
    found = {c.label: cell.text for c, cell in zip(table.columns, table.rows[1].cells, strict=True)}
    assert found == {
        "Rank": "1",
        "Unprofiled steps": "792",
        "Step time": "79.60",
        "Step time, p99": "85.00",
        "Longest step": "86.00",
        "Longest step is": "401",
        "Drift": "1.5",
        "Input": "75.2",
        "Garbage collection": "0.12",
    }
    gpu_straggler.pulse = RunSteps(attempt=0, steps=1, rows=[RankStepTimes(rank=0)])
    assert [c.label for c in page.rows(gpu_straggler).columns] == ["Rank", "Unprofiled steps"]


def test_every_writer_says_whether_the_window_was_typical(gpu_straggler: ClusterReport) -> None:
    assert gpu_straggler.pulse is not None
    said = "the window was typical: 80.1 ms around it, 79.6 ms over 792 steps"
    assert summary.run_steps_line(gpu_straggler) == said
    assert said in markdown.render(gpu_straggler)
    assert said in " ".join(terminal.render(gpu_straggler).split())
    page = html.render(gpu_straggler)
    assert "The window was typical: 80.1 ms" in page
    assert "no step times of 1 of 3 ranks" in page
    gpu_straggler.pulse.typical = False
    gpu_straggler.pulse.windows *= 2
    assert (summary.run_steps_line(gpu_straggler) or "").startswith("the windows were not typical: 80.1 ms around them")
    gpu_straggler.pulse.typical = None
    assert summary.run_steps_line(gpu_straggler) is None
    assert "Steps  " not in terminal.render(gpu_straggler)
