"""Figures hold the numbers of the report, by rank and step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope.errors import AnalysisError
from rankscope.records.report import ClusterReport
from rankscope.records.rows import KernelRow, MemoryRow, StepRow
from rankscope.report.notebook import Report

GIB = 2**30


def step(rank: int, number: int, ms: float, late: float) -> StepRow:
    return StepRow(
        attempt=0, window=0, step=number, rank=rank, duration_ms=ms, compute_ms=ms / 2, comm_ms=0.0,
        exposed_comm_ms=0.0, idle_ms=0.0, lateness_ms=late,
    )  # fmt: skip


@pytest.fixture
def report(gpu_straggler: ClusterReport) -> Report:
    steps = [step(0, 13, 100.0, -5.0), step(0, 14, 101.0, -6.0), step(1, 13, 102.0, 5.0), step(1, 14, 103.0, 6.0)]
    held = MemoryRow(
        attempt=0, window=0, rank=1, file=None, peak_allocated_bytes=30 * GIB, peak_reserved_bytes=40 * GIB,
        end_allocated_bytes=0, end_reserved_bytes=0, segment_allocs=None, segment_frees=None, device_bytes=80 * GIB,
    )  # fmt: skip
    return Report(replace(gpu_straggler, steps=steps, memory=[held]))


def test_steps_are_a_map_and_lines(report: Report) -> None:
    (map_,) = report.plot.map().data
    assert (list(map_.x), list(map_.y)) == (["13", "14"], ["0", "1"])
    assert [list(row) for row in map_.z] == [[-5.0, -6.0], [5.0, 6.0]]
    costly = [replace(row, cost_ms=row.rank * 30.0) for row in report.record.steps]
    (costs,) = Report(replace(report.record, steps=costly)).plot.map().data
    assert [list(row) for row in costs.z] == [[0.0, 0.0], [30.0, 30.0]]
    lines = {line.name: list(line.y) for line in report.plot.steps().data}
    assert lines == {"rank 0": [100.0, 101.0], "rank 1": [102.0, 103.0]}
    assert [line.name for line in report.plot.steps(ranks=[1]).data] == ["rank 1"]


def test_of_many_ranks_the_named_ones_are_drawn_beside_the_range(report: Report) -> None:
    many = replace(report.record, steps=[step(rank, 13, 100.0 + rank, 0.0) for rank in range(17)])
    lines = {line.name: list(line.y) for line in Report(many).plot.steps().data}
    assert lines == {"slowest rank": [116.0], "median rank": [108.0], "fastest rank": [100.0], "rank 1": [101.0]}


def test_bars(report: Report) -> None:
    (compute,) = [bar for bar in report.plot.breakdown().data if bar.name == "Compute"]
    assert (list(compute.y), list(compute.x)) == (["0", "1"], [38.217, 37.9])
    (gains,) = report.plot.gains().data
    assert (list(gains.x), list(gains.error_x.array)) == ([60.3, 4.2], [1.9, 0.0])
    assert list(gains.y) == ["Give rank 1's DataLoader more workers.", "at most: torch.compile the model."]
    (work,) = report.plot.efficiency().data
    assert (list(work.x)[:2], work.text[0]) == ([15.0, 9.0], "75 % of peak")
    held = {bar.name: list(bar.y) for bar in report.plot.memory().data}
    assert held == {"tensors": [30.0], "reserved": [40.0], "the device has": [80.0]}


def test_kernels_below_the_roof(report: Report) -> None:
    """A product of 700 TFLOP/s that moves 700 GB/s makes 1,000 operations per byte; the roof bends at 989 / 3.35."""
    rows = [
        KernelRow(name=name, category="", ms_per_step=ms, launches_per_step=1.0, share_pct=1.0, tflops=rate, gb_s=gb)
        for name, ms, rate, gb in (("mm", 4.0, 700.0, 700.0), ("add", 1.0, None, 2400.0), ("unknown", 9.0, None, None))
    ]
    roof, dots = Report(replace(report.record, kernels=rows)).plot.roofline().data
    assert list(roof.x) == [1 / 24, pytest.approx(989 / 3.35), 2000.0]
    assert list(roof.y)[1:] == [pytest.approx(989.0), 989.0]
    assert (list(dots.x), list(dots.y)) == ([1000.0, 1 / 12], [700.0, pytest.approx(0.2)])
    assert (list(dots.marker.symbol), list(dots.marker.size)) == (["circle", "circle-open"], [40.0, 24.0])


def test_the_critical_path_of_a_step(report: Report) -> None:
    figure = report.plot.step()
    lanes = {bar.name: (list(bar.y), list(bar.base), list(bar.x)) for bar in figure.data}
    assert lanes["Host"] == (["1"], [0.0], [50.0])
    assert lanes["Transfer"] == (["0"], [50.2], [49.8])
    assert figure.layout.title.text == "Critical path of step 14, 100.0 ms"


def test_missing_data_is_reported(report: Report) -> None:
    bare = Report(
        replace(
            report.record, steps=[], memory=[], actions=[], efficiency=None, ranks=[], kernels=[], critical_path=None
        )
    )
    for name in dir(bare.plot):
        with pytest.raises(AnalysisError, match=r"this report has no .* to plot"):
            getattr(bare.plot, name)()
    with pytest.raises(ValueError, match="'nothing' is no column of the steps"):
        report.plot.map("nothing")
