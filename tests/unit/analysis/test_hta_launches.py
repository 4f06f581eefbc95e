"""HTA's numbers of launches, sequences and annotations of a trace made by hand; all times in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis.hta import launches
from rankscope.analysis.hta.adapter import run_hta
from rankscope.analysis.hta.table import BREAKDOWNS
from rankscope.report.common.hta import MEANINGS
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.load import load_traces

# name, category, start, duration; kernels also their stream and the start of their launch
HOST = [
    ("outer", "cpu_op", 0, 100),
    ("aten::a", "cpu_op", 5, 50),
    ("aten::b", "cpu_op", 10, 20),
    ("mine", "user_annotation", 0, 50),
    ("mine", "user_annotation", 200, 30),
    ("ProfilerStep#3", "user_annotation", 0, 400),
]
KERNELS = [
    # launch: start, duration; kernel: start, duration, stream
    ("void first<4>(int)", 12, 4, 40, 12, 7),
    ("ncclDevKernel_AllReduce", 35, 10, 42, 30, 8),
    ("third", 60, 10, 300, 5, 7),
    ("fourth", 120, 60, 320, 10, 7),
]


def trace(folder: Path, kernels: list[tuple[str, int, int, int, int, int]]) -> RankTrace:
    events: list[dict[str, Any]] = [
        {"ph": "X", "name": name, "cat": cat, "pid": 1, "tid": 1, "ts": ts, "dur": dur} for name, cat, ts, dur in HOST
    ]
    for number, (name, asked, took, start, duration, stream) in enumerate(kernels):
        link = {"correlation": number + 1}
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": asked, "dur": took}
        work = {"cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": duration}
        events.append({"ph": "X", **launch, "args": link})
        events.append({"ph": "X", **work, "args": {"stream": stream, "device": 0, **link}})
    path = folder / "rank_0.json"
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 0, "world_size": 1}}))
    return load_traces([path], cache=False, workers=1).traces[0]


def numbers(own: RankTrace) -> dict[str, Any]:
    found, failed = run_hta([own])
    assert failed == []
    return {name: by_rank["0"] for name, by_rank in found.items()}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(launches, "_FULL_QUEUE", 2)
    return numbers(trace(tmp_path, KERNELS))


def test_launches(found: dict[str, Any]) -> None:
    assert found["launch_statistics"] == {
        "launches": 4,
        "median_cpu_duration(us)": 10.0,  # 4, 10, 10, 60
        "median_gpu_duration(us)": 11.0,  # 5, 10, 12, 30
        "median_launch_delay(us)": 82.0,  # 24, 0 (it began before its launch had ended), 230, 140
        "short_gpu_kernels": 1,  # the third; the fourth is shorter too, but its launch is an outlier
        "runtime_outliers": 1,
        "launch_delay_outliers": 2,
    }


def test_time_of_a_full_queue(found: dict[str, Any]) -> None:
    full = {row["stream"]: row["duration_at_max_queue_length"] for row in found["queue_length"]}
    assert full == {7: 180.0, 8: 0.0}  # two wait from the fourth launch on, until the third kernel begins
    assert found["queue_length"][0]["relative_duration_at_max_queue_length"] == 180 / 320


def test_kernels_of_operators(found: dict[str, Any]) -> None:
    # the innermost ATen operator around the launch; the third and the fourth kernel have none
    first, second = sorted(found["operator_kernels"], key=lambda row: row["aten_op_name"])
    assert first == {
        "aten_op_name": "aten::a",
        "occurrence_count": 1,
        "avg_aten_op_launch_delay": 30.0,
        "avg_runtime_delay": 7.0,
        "kernel_sequence": "ncclDevKernel_AllReduce",
    }
    assert (second["aten_op_name"], second["kernel_sequence"]) == ("aten::b", "first")
    assert (second["avg_aten_op_launch_delay"], second["avg_runtime_delay"]) == (2.0, 28.0)


def test_sequences_of_outermost_operators(found: dict[str, Any]) -> None:
    assert found["frequent_kernel_sequences"] == [
        {
            "operator": "outer",
            "count": 1,
            "GPU kernel duration (us)": 47.0,
            "CPU op duration (us)": 100.0,
            "kernel_sequence": "first -> ncclDevKernel_AllReduce -> third",
        }
    ]


def test_a_long_sequence_is_cut(tmp_path: Path) -> None:
    kernels = [(f"k{n}", 60 + n, 1, 400 + n, 1, 7) for n in range(8)]
    (row,) = numbers(trace(tmp_path, kernels))["frequent_kernel_sequences"]
    assert row["kernel_sequence"] == "k0 -> k1 -> k2 -> k3 -> k4 -> k5 -> 2 more"
    assert row["GPU kernel duration (us)"] == 8.0


def test_annotations_but_for_steps(found: dict[str, Any]) -> None:
    (row,) = found["user_annotation_breakdown"]
    assert (row["annotation"], row["name"], row["sum (us)"], row["mean (us)"]) == ("user_annotation", "mine", 80, 40)


def test_types_that_run_at_once(found: dict[str, Any]) -> None:
    assert found["kernel_type_breakdown"] == [
        {"kernel_type": "COMMUNICATION", "sum": 20.0, "percentage": 42.6},
        {"kernel_type": "COMPUTATION", "sum": 17.0, "percentage": 36.2},
        {"kernel_type": "COMPUTATION overlapping COMMUNICATION", "sum": 10.0, "percentage": 21.3},
    ]


def test_gaps_of_a_stream(found: dict[str, Any]) -> None:
    gaps = {row["idle_category"]: row for row in found["idle_time_breakdown"] if row["stream"] == 7}
    assert {kind: (row["count"], row["min"], row["50%"], row["max"]) for kind, row in gaps.items()} == {
        "host_wait": (1, 248.0, 248.0, 248.0),
        "kernel_wait": (1, 15.0, 15.0, 15.0),
        "other": (0, None, None, None),
    }


def test_kernels_whose_launches_are_not_recorded(tmp_path: Path) -> None:
    own = trace(tmp_path, KERNELS)
    own.events.launch[:] = -1
    found = numbers(own)
    assert found["launch_statistics"]["launches"] == 0
    assert found["launch_statistics"]["median_launch_delay(us)"] is None
    assert found["queue_length"] == found["operator_kernels"] == found["frequent_kernel_sequences"] == []


def test_every_analysis_has_its_meaning() -> None:
    assert set(BREAKDOWNS) == set(MEANINGS)
