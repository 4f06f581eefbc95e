"""A job of one rank: gains of less work by replay of its steps. Expected numbers are calculated by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis.evidence.contention import contention
from rankscope.analysis.gains.pageable import pageable_ms
from rankscope.analysis.gains.work_gains import work_gains
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.windows.analyse import ALONE, WindowResult, analyse_window
from rankscope.trace.kineto.build import read_trace

from .test_contention import manifest, thread

COPY, KERNEL = "Memcpy HtoD (Pageable -> Device)", "void vectorized_elementwise_kernel<float>"


def window(tmp_path: Path, copy: str = COPY, kernel: str = KERNEL) -> WindowResult:
    """Two steps of 1,000 us. In each, a host copies from 100 to 500 us (the device from 110 to 495), and launches at
    520 a kernel that runs from 530 to 830."""
    rows: list[dict[str, Any]] = []

    def event(name: str, cat: str, start: float, length: float, tid: int, **args: Any) -> None:
        rows.append(
            {"ph": "X", "name": name, "cat": cat, "pid": 1, "tid": tid, "ts": start, "dur": length, "args": args}
        )

    for number in (0, 1):
        at = 1000.0 * number
        event(f"ProfilerStep#{number}", "user_annotation", at, 1000.0, 1)
        event("aten::copy_", "cpu_op", at + 90, 415.0, 1)
        event("cudaMemcpyAsync", "cuda_runtime", at + 100, 400.0, 1, correlation=2 * number + 1)
        event(copy, "gpu_memcpy", at + 110, 385.0, 7, stream=7, correlation=2 * number + 1)
        event("cudaLaunchKernel", "cuda_runtime", at + 520, 10.0, 1, correlation=2 * number + 2)
        event(kernel, "kernel", at + 530, 300.0, 7, stream=7, correlation=2 * number + 2)
    path = tmp_path / "rank_0.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": 0, "traceEvents": rows}))
    trace = read_trace(path)
    trace.rank = 0
    return analyse_window([trace])


def test_what_less_work_would_gain(tmp_path: Path) -> None:
    """Without the copies the host goes on at 115 (the call begins at 100, the device 10 later, and the host returns 5
    after its end), launches 20 later, and the kernel ends at 445: 385 us earlier in each step.

    Without the kernel the last step ends at 1,530, 300 us earlier in two steps; the host, which the steps wait for,
    goes on as it did. Without host work the first copy begins at 10 and the kernel at 410; the second copy waits for
    the end of the kernel at 710 and the least gap of 12 us, returns at 1,112, and its kernel ends at 1,422: 408 us
    earlier.
    """
    found = window(tmp_path)
    assert found.refused == ALONE
    assert found.replay is not None
    assert (found.replay.steps, found.replay.error) == (2, pytest.approx(0.0, abs=1e-6))
    assert pageable_ms([found]) == pytest.approx(0.385, abs=1e-3)
    assert work_gains([found])["element-wise, norms and losses"] == pytest.approx(0.150, abs=1e-3)
    gains = found.replay.gains(found.replay.without(Work.HOST))
    assert gains.sum() / 2 == pytest.approx(204_000, abs=1_000)


def test_a_copy_from_pinned_memory_is_no_copy_from_pageable_memory(tmp_path: Path) -> None:
    assert pageable_ms([window(tmp_path, copy="Memcpy HtoD (Pinned -> Device)")]) == 0.0


def test_a_rank_that_waits_for_others_is_not_replayed_alone(tmp_path: Path) -> None:
    found = window(tmp_path, kernel="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    assert (found.refused, found.replay) == (ALONE, None)


def test_a_lone_rank_has_no_contention_to_tell(tmp_path: Path) -> None:
    """Its segments are launches, not calls, and nothing of them is looked up among calls."""
    found = window(tmp_path)
    counted = manifest(found, [thread(1, "python", 1.0, 5.0, steps=2)])
    assert contention([found], counted) is None
