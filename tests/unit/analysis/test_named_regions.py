"""The region of the script in which a late rank's extra time lies, from traces made by hand; times in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.records.report import ClusterReport
from rankscope.trace.files.load import load_traces

STEP = 76_000
Rows = list[tuple[str, str, float, float, int]]
"""Name, class, start and duration within the step, correlation (0: none)."""


def step_of(rank: int, *, fault: str) -> Rows:
    """A step: fetching a batch, products, a reduction that waits for the slower rank, and an update. Rank 1 fetches for
    30 ms and not for 1, or has six products of 10 ms and not three."""
    fetch = 30_000 if rank and fault == "input" else 1_000
    products = 6 if rank and fault == "compute" else 3
    begin = fetch + 2_000
    reduce = begin + 100 + products * 10_000
    rows: Rows = [
        ("ProfilerStep#", "user_annotation", 0, STEP - 10, 0),
        ("train", "user_annotation", 10, STEP - 100, 0),  # holds everything, and so tells nothing
        ("enumerate(DataLoader)#_Iter.__next__", "user_annotation", 100, fetch, 0),
        ("augment", "user_annotation", 200, fetch - 200, 0),
        ("loss", "user_annotation", begin - 10, 1_000, 0),
    ]
    for n in range(products):
        rows.append(("aten::mm", "cpu_op", begin + 60 * n, 50, 0))
        rows.append(("cudaLaunchKernel", "cuda_runtime", begin + 60 * n + 10, 20, 10 + n))
        rows.append(("gemm", "kernel", begin + 100 + n * 10_000, 9_990, 10 + n))
    return [
        *rows,
        ("cudaLaunchKernel", "cuda_runtime", begin + 500, 20, 2),
        ("ncclDevKernel_AllReduce", "kernel", reduce, 74_000 - reduce, 2),
        ("cudaDeviceSynchronize", "cuda_runtime", begin + 600, 74_005 - begin - 600, 0),
        ("aten::add_", "cpu_op", 75_000, 50, 0),
        ("cudaLaunchKernel", "cuda_runtime", 75_010, 20, 3),
        ("update", "kernel", 75_100, 200, 3),
    ]


def trace(folder: Path, rank: int, fault: str) -> None:
    events: list[dict[str, Any]] = []
    for step in range(5):
        for name, kind, start, duration, link in step_of(rank, fault=fault):
            device = kind == "kernel"
            args = {"correlation": 100 * step + link} if link else {}
            events.append(
                {
                    "ph": "X",
                    "name": f"{name}{step}" if name.endswith("#") else name,
                    "cat": kind,
                    "pid": 0 if device else 100,
                    "tid": (20 if "nccl" in name else 7) if device else 100,
                    "ts": 1_000_000 + step * STEP + start,
                    "dur": duration,
                    "args": args | ({"stream": 20 if "nccl" in name else 7, "device": 0} if device else {}),
                }
            )
    about = {"rank": rank, "world_size": 2, "backend": "nccl"}
    (folder / f"rank_{rank}.json").write_text(json.dumps({"traceEvents": events, "distributedInfo": about}))


def report(folder: Path, fault: str) -> ClusterReport:
    for rank in range(2):
        trace(folder, rank, fault)
    return analyze(load_traces([folder], cache=False, workers=1), hta=False)


@pytest.mark.parametrize(
    ("fault", "cause", "cost_ms", "words"),
    [
        # within augment a batch is fetched for 29.8 ms on rank 1, and for 0.8 ms on rank 0
        (
            "input",
            "input_stall",
            29.0,
            "Most of it lies in the region augment: 30 ms a step there, 0.80 ms on its peers.",
        ),
        (
            "compute",
            "extra_compute",
            30.0,
            "Most of it lies in the region loss: 60 ms a step there, 30 ms on its peers.",
        ),
    ],
)
def test_the_region_of_the_extra_time(fault: str, cause: str, cost_ms: float, words: str, tmp_path: Path) -> None:
    verdict = report(tmp_path, fault).verdict
    assert (verdict.ranks, verdict.cause) == ([1], cause)
    assert verdict.cost_ms_per_step == pytest.approx(cost_ms, abs=0.2)
    assert [line for line in verdict.why if "region" in line] == [words]
