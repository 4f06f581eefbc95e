"""Folders of tests/data/cases about loading: the numbers in ``expected.json`` are reproduced."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.trace.columns import RankTrace
from rankscope.trace.files.identify import NAME_CONFLICT
from rankscope.trace.files.load import LoadResult, load_traces
from rankscope.trace.kineto import repair

pytestmark = pytest.mark.data
Accounts = Callable[..., dict[str, float]]


def load(data: Path, case: str) -> tuple[LoadResult, dict[str, Any]]:
    folder = data / "cases" / case
    return load_traces([folder / "traces"], cache=False), json.loads((folder / "expected.json").read_text())


def by_rank(result: LoadResult) -> dict[str, RankTrace]:
    return {str(t.rank): t for t in result.traces}


@pytest.mark.parametrize(
    "case",
    [
        "01_overlap_two_streams",
        "02_odd_kernel_names",
        "05_duplicate_correlation",
        "06_missing_dur",
        "08_sub_microsecond",
        "15_no_profilerstep",
        "20_rocm_names",
    ],
)
def test_one_rank(data: Path, accounts: Accounts, case: str) -> None:
    result, expected = load(data, case)
    (trace,) = result.traces
    measured: dict[str, Any] = accounts(trace)
    measured["steps"] = len(trace.steps)
    measured["dropped_events"] = sum(n for kind, n in trace.repairs.items() if kind in repair.DROPS)
    compared = {k: v for k, v in expected.items() if k in measured}
    assert compared
    assert {k: measured[k] for k in compared} == pytest.approx(compared, abs=1e-9)
    assert (trace.events.duration >= 0).all()


@pytest.mark.parametrize(
    "case", ["07_ts_types", "10_rank_name_conflict", "11_no_distributed_info", "13_foreign_files", "27_event_list"]
)
def test_several_ranks(data: Path, accounts: Accounts, case: str) -> None:
    result, expected = load(data, case)
    traces = by_rank(result)
    for quantity in ("compute_us", "overlap_us"):
        for rank, value in expected.get(quantity, {}).items():
            assert accounts(traces[rank])[quantity] == pytest.approx(value, abs=1e-9), (rank, quantity)
    assert sorted(traces) == sorted(expected["compute_us"])
    ignored = [s for s in result.sources if s.status == "ignored"]
    assert all(s.reason for s in ignored)
    assert len(ignored) == expected.get("ignored", 0)
    unassigned = [Path(s.path).name for s in result.sources if s.status == "unassigned"]
    assert unassigned == expected.get("unassigned", [])


def test_invalid_strings_are_mended_with_a_word(data: Path, accounts: Accounts) -> None:
    result, expected = load(data, "03_invalid_strings")
    for trace in result.traces:
        letter = Path(trace.source).name[0]
        assert accounts(trace)["compute_us"] == expected["recoverable"].get(letter, 50)
        assert sum(trace.repairs.values()) == 1
    assert len(result.traces) == 4
    names = {t.strings[c] for t in result.traces for c in t.events.name.tolist()}
    assert {'{"device": "cpu"}(12): run', "gemm\nsplit", "torch\\cuda\\_init.py(219): lazy"} <= names


def test_a_conflict_of_name_and_content_is_reported(data: Path) -> None:
    result, _ = load(data, "10_rank_name_conflict")
    told = [t.rank for t in result.traces if NAME_CONFLICT in t.repairs]
    assert told == [0, 1]


def test_nested_steps(data: Path, accounts: Accounts) -> None:
    result, expected = load(data, "14_nested_profilerstep")
    (trace,) = result.traces
    assert len(trace.steps) == expected["steps"]
    assert (trace.steps.duration / 1000).tolist() == expected["step_us"]
    assert trace.steps.number.tolist() == [2, 3]
    assert [accounts(trace, s)["compute_us"] for s in range(2)] == expected["compute_us_per_step"]


def test_kernels_belong_to_the_step_of_their_launch(data: Path, accounts: Accounts) -> None:
    result, expected = load(data, "22_async_tail")
    (trace,) = result.traces
    assert [accounts(trace, s)["compute_us"] for s in range(3)] == expected["compute_us_per_step"]
    assert [accounts(trace, s)["comm_us"] for s in range(3)] == expected["comm_us_per_step"]
    assert accounts(trace)["gpu_busy_us"] == expected["gpu_busy_us"]


def test_groups_are_identified_by_their_ranks(data: Path) -> None:
    result, expected = load(data, "16_two_process_groups")
    calls: dict[tuple[Any, ...], dict[int, int]] = {}
    for trace in result.traces:
        c = trace.collectives
        for i in range(len(c)):
            key = (trace.groups[c.group[i]].ranks, c.kind[i], int(c.seq[i]))
            calls.setdefault(key, {})[trace.rank or 0] = int(trace.events.start[c.event[i]])
    waits = dict.fromkeys(map(str, range(4)), 0.0)
    caused: dict[str, float] = {}
    for arrivals in calls.values():
        last = max(arrivals, key=lambda r: arrivals[r])
        for rank, start in arrivals.items():
            waits[str(rank)] += (arrivals[last] - start) / 1000
            if start < arrivals[last]:
                caused[str(last)] = caused.get(str(last), 0) + (arrivals[last] - start) / 1000
    assert waits == expected["wait_us_by_waiter"]
    assert caused == expected["wait_us_caused_by"]


def test_gloo(data: Path) -> None:
    result, expected = load(data, "19_gloo_cpu_only")
    for rank, trace in by_rank(result).items():
        assert trace.has_device is expected["gpu"]
        rows = trace.collectives.event
        assert trace.events.duration[rows].sum() / 1000 == expected["comm_us"][rank]
        assert trace.collectives.kind == ["allreduce", "allreduce"]
        assert [trace.groups[g].ranks for g in trace.collectives.group] == [(0, 1), (0, 1)]
        assert trace.events.step[rows].tolist() == [0, 1]


def test_arrivals_of_a_straggler(data: Path) -> None:
    result, expected = load(data, "23_straggler_late_rank")
    starts = np.array([t.events.start[t.collectives.event] for t in result.traces])
    ends = np.array([t.events.end[t.collectives.event] for t in result.traces])
    wait = (starts.max(axis=0) - starts) / 1000
    assert (wait == np.array([[expected["wait_us_per_step"][str(r)]] for r in range(4)])).all()
    assert ((ends.min(axis=0) - starts.max(axis=0)) / 1000 == expected["transfer_us"]).all()


def test_cycles_of_one_process_are_windows(data: Path, accounts: Accounts) -> None:
    result, expected = load(data, "26_repeat_cycles")
    assert {t.window for t in result.traces} == set(range(expected["cycles"]))
    for rank, values in expected["compute_us"].items():
        mine = sorted((t for t in result.traces if str(t.rank) == rank), key=lambda t: t.window)
        assert [accounts(t)["compute_us"] for t in mine] == values
