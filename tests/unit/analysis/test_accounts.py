"""Time accounting of hand-made traces, and the published numbers of an 8-rank trace."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.accounting.idle import idle_time
from rankscope.analysis.accounting.usage import device_times, step_bounds, step_usage, usage, window_usage
from rankscope.analysis.clocks.alignment import align
from rankscope.analysis.clocks.waits import measure_waits
from rankscope.analysis.matching.collectives import match
from rankscope.analysis.rank.view import make_view
from rankscope.trace.columns import Category

pytestmark = pytest.mark.data

NUMBERS = {
    "compute_us": "compute",
    "comm_us": "comm",
    "overlap_us": "overlap",
    "exposed_comm_us": "exposed_comm",
}


@pytest.mark.parametrize("number", ["01", "05", "08", "20"])
def test_device_time_of_a_case(case, number) -> None:
    traces, expected = case(number)
    view = make_view(traces[0], 0)
    found = usage(view.compute, view.comm, view.copy)
    for key, name in NUMBERS.items():
        assert getattr(found, name) / 1000 == expected[key], key
    assert (found.busy - found.exposed_copy) / 1000 == expected["gpu_busy_us"]
    if "memcpy_us" not in expected:
        assert found.span / 1000 == expected["gpu_span_us"]
        assert found.idle / 1000 == expected["idle_in_span_us"]


def test_work_belongs_to_the_step_that_launched_it(case) -> None:
    traces, expected = case("22")
    view = make_view(traces[0], 0)
    steps = step_usage(device_times(view), step_bounds(view))
    assert [s.compute / 1000 for s in steps] == expected["compute_us_per_step"]
    assert [s.comm / 1000 for s in steps] == expected["comm_us_per_step"]


@pytest.mark.parametrize("stray", [0, 1 << 61])
def test_times_since_1970_and_one_that_is_damaged_change_no_other_step(case, stray) -> None:
    (trace, *_), expected = case("22")
    for times in (trace.events.start, trace.steps.start):
        times += 1_764_000_000_000_000_000  # November 2025, ns
    view = make_view(trace, 0)
    bounds = step_bounds(view)
    last = trace.events.step.max()
    trace.events.duration[np.flatnonzero(trace.events.step == last)[-1]] += stray
    found = [s.compute / 1000 for s in step_usage(device_times(view), bounds)]
    assert found[:-1] == expected["compute_us_per_step"][:-1]
    assert stray or found == expected["compute_us_per_step"]


def test_without_a_device_operators_are_the_work(case) -> None:
    traces, expected = case("19")
    views = [make_view(t, t.rank) for t in traces]
    assert [v.device for v in views] == [False, False]
    assert {str(v.rank): window_usage(device_times(v)).comm / 1000 for v in views} == expected["comm_us"]
    assert [window_usage(device_times(v)).compute / 1000 for v in views] == [600, 1000]


@pytest.mark.parametrize("name", ["ddp_healthy", "gloo_fsdp2_none"])
def test_the_window_is_filled(recorded, name) -> None:
    for trace in recorded(name).traces:
        found = window_usage(device_times(make_view(trace, trace.rank)))
        assert found.compute + found.exposed_comm + found.exposed_copy + found.idle == found.span
        assert found.overlap + found.exposed_comm == found.comm


FUSED = "kernel_fused_gemm_allreduce"


def test_kernels_that_compute_and_communicate_are_neither(make_trace) -> None:
    """us: fused 100 to 200 (gemm hides 180 to 200), all-reduce 150 to 260 (bare from 200 on), else nothing."""
    rows = [(FUSED, 100, 100), ("ncclDevKernel_AllReduce", 150, 110), ("gemm", 180, 20), ("gemm", 300, 50)]
    view = make_view(make_trace(0, rows, ranks=(0, 1), steps=[(80, 270)]), 0)
    found = window_usage(device_times(view))
    assert (found.fused, found.compute, found.comm) == (80_000, 70_000, 110_000)
    assert (found.exposed_comm, found.overlap, found.idle) == (60_000, 50_000, 60_000)
    assert found.compute + found.fused + found.exposed_comm + found.exposed_copy + found.idle == found.span
    matched = match([view])
    idle = idle_time(
        device_times(view), 0, matched, measure_waits([view], matched, align([view], matched)), step_bounds(view)
    )
    assert (idle.transfer, idle.host, idle.copy) == (60_000, 60_000, 0)


@pytest.mark.parametrize(("devices", "communication"), [((0,), 30_000), ((0, 1), 0)])
def test_copies_from_peer_to_peer_leave_a_process_of_one_device(make_trace, devices, communication) -> None:
    trace = make_trace(
        0, [("gemm", 100, 50), ("gemm", 100, 50), ("Memcpy PtoP (Device -> Device)", 160, 30)], ranks=(0, 1)
    )
    gpu = trace.events.stream >= 0
    trace.events.category[gpu & (trace.events.duration == 30_000)] = Category.GPU_MEMCPY
    trace.events.pid[gpu & (trace.events.duration == 50_000)] = [devices[0], devices[-1]]
    found = window_usage(device_times(make_view(trace, 0)))
    assert found.comm == communication
    assert bool(found.exposed_copy) is (communication == 0)
