"""Waiting for input, per step and rank, on hand-made traces; the truth is added up by hand."""

from __future__ import annotations

import json

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.trace.files.load import load_traces

NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def host(name: str, start: int, end: int, cat: str = "user_annotation", **args) -> dict:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args
    }  # fmt: skip


def work(number: int, launched: int, start: int, end: int) -> list[dict]:
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": start, "dur": end - start}
    return [
        host("cudaLaunchKernel", launched, launched + 5, "cuda_runtime", correlation=number),
        kernel | {"args": {"stream": 7, "correlation": number}},
    ]


@pytest.fixture
def measured(tmp_path):
    def measure(events: list[dict]) -> tuple[list[float], list[float], float]:
        """Input and idle of each step, input of the rank per step; us."""
        (tmp_path / "rank_0.json").write_text(json.dumps({"traceEvents": events}))
        report = analyze(load_traces([tmp_path], cache=False), hta=False)
        assert report.errors == []
        by_step = [(1000 * row.input_ms, 1000 * row.idle_ms) for row in report.steps]
        return [i for i, _ in by_step], [i for _, i in by_step], 1000 * report.idle[0].input_ms

    return measure


def test_on_a_device_a_step_lasts_until_its_last_work_ends(measured) -> None:
    steps = [host("ProfilerStep#4", 0, 1000), host("ProfilerStep#5", 1000, 2000)]
    # the first step is that of [0, 1100) on the device, idle in [0, 120) and [600, 800); the second that of
    # [1100, 2000), idle in [1100, 1400) and [1900, 2000)
    kernels = work(1, 100, 120, 600) + work(2, 640, 800, 1100) + work(3, 1350, 1400, 1900)
    fetched = [
        host(NEXT, 20, 100),  # all of it idle
        host(NEXT, 650, 950),  # idle until 800
        host(NEXT, 980, 1300),  # idle from 1100
        host(NEXT, 1950, 2100),  # idle until the window ends
        host("enumerate_elsewhere", 1300, 1340),
    ]
    inputs, idle, per_step = measured(steps + kernels + fetched)
    assert inputs == pytest.approx([80 + 150, 200 + 50])
    assert idle == pytest.approx([120 + 200, 300 + 100])
    assert per_step == pytest.approx((230 + 250) / 2)


def test_without_a_device_a_step_is_the_host_s(measured) -> None:
    events = [
        host("ProfilerStep#4", 0, 1000),
        host("ProfilerStep#5", 1100, 2000),
        host("aten::mm", 100, 600, "cpu_op"),
        host("aten::mm", 1500, 1900, "cpu_op"),
        host(NEXT, 550, 900),
        host(NEXT, 1050, 1400),  # 50 of it between two steps, in no row of a step
    ]
    inputs, idle, per_step = measured(events)
    assert inputs == pytest.approx([300, 300])
    assert idle == pytest.approx([500, 500])
    assert per_step == pytest.approx((300 + 350) / 2)


def test_a_job_without_a_data_loader_waits_for_none(measured) -> None:
    inputs, _, per_step = measured([host("ProfilerStep#4", 0, 1000), *work(1, 100, 120, 600)])
    assert (inputs, per_step) == ([0.0], 0.0)
