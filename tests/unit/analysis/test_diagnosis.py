"""Recorded traces with known faults: rank and cause are right, or no rank is named."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.records.codec import from_json, to_json
from rankscope.records.report import ClusterReport

from .conftest import LABELS

pytestmark = pytest.mark.data


@pytest.mark.parametrize("name", LABELS)
def test_the_right_rank_or_none(recorded, name) -> None:
    label = LABELS[name]
    report = analyze(recorded(name), hta=False)
    assert report.errors == []
    if label["rank"] is None:
        assert report.verdict.kind in {"balanced", "host_bound"}
        assert report.verdict.ranks == []
        assert report.verdict.cost_ms_per_step is None
        return
    assert any(f.ranks == [label["rank"]] and f.kind == label["cause"] for f in report.findings)
    if label["verdict"] == "straggler":
        assert report.verdict.kind == "straggler"
    if report.verdict.kind == "straggler":
        assert (report.verdict.ranks, report.verdict.cause) == ([label["rank"]], label["cause"])
        assert report.verdict.cost_error_ms > 0
    if "planted_ms" in label:
        assert report.verdict.cost_ms_per_step == pytest.approx(label["planted_ms"], rel=0.15)


def test_two_ranks_with_a_fault_each_are_both_named(recorded) -> None:
    # a loader of 60 ms on rank 0, extra matrix products on rank 1
    report = analyze(recorded("encoder_two_faults"), hta=False)
    assert report.verdict.kind == "straggler"
    assert sorted(report.verdict.ranks) == [0, 1]
    told = {(f.kind, *f.ranks) for f in report.findings}
    assert told >= {("input_stall", 0), ("extra_compute", 1)}


def test_collectives_in_a_cuda_graph_are_matched(recorded) -> None:
    # 8 linear layers: a weight and a bias each, reduced one by one
    report = analyze(recorded("graph_healthy"), hta=False)
    (group,) = report.groups
    assert (group.collective, group.ranks, group.calls_per_step) == ("all_reduce", [0, 1], 16)
    assert (report.collectives.matched_pct, report.collectives.method) == (100, "order")
    # not hidden: reduced when the whole backward is done
    assert all(row.overlap_pct < 5 for row in report.ranks)


@pytest.mark.parametrize("name", ["ddp_slow_gpu", "gloo_ddp_input"])
def test_the_contract(recorded, name) -> None:
    report = analyze(recorded(name), hta=False)
    assert from_json(ClusterReport, to_json(report)) == report
    assert [r.rank for r in report.ranks] == [0, 1]
    for row in report.ranks:
        total = row.compute_pct + row.exposed_comm_pct + row.memcpy_pct + row.idle_pct
        assert total == pytest.approx(100, abs=1e-6)
        assert row.status == "ok"
        assert row.wait_ms_per_step >= 0
        assert row.step_ms["median"] <= row.step_ms["p95"]
    assert set(report.what_if) == {"ideal_network", "hidden_transfers", "even_compute", "no_host_overhead"}
    late, other = report.ranks[1], report.ranks[0]
    assert late.caused_wait_ms_per_step == pytest.approx(other.wait_ms_per_step, rel=0.1)
    assert report.collectives.matched_pct == 100
    assert report.clock.method == ("host_clock" if name.startswith("gloo") else "collective_ends")
    assert set(report.clock.offsets_us) == {"0", "1"}
    assert report.verdict.sentence
    assert report.verdict.why
    assert report.verdict.next
    assert len({f.id for f in report.findings}) == len(report.findings)
    for row in report.idle:
        assert min(row.waiting_ms, row.transfer_ms, row.input_ms, row.host_ms, row.copy_ms) >= 0
    assert {(s.rank, s.step) for s in report.steps} == {(r, s.step) for r in (0, 1) for s in report.steps}
    assert report.kernels[0].ms_per_step >= report.kernels[-1].ms_per_step


def test_the_case_of_four_ranks(case) -> None:
    from rankscope.trace.files.load import LoadResult

    traces, expected = case("23")
    report = analyze(LoadResult(traces=traces, sources=[]), hta=False)
    assert (report.verdict.kind, report.verdict.ranks) == ("straggler", [expected["straggler"]])
    assert report.verdict.cost_ms_per_step == pytest.approx(0.25)


def test_the_case_without_a_device(case) -> None:
    from rankscope.trace.files.load import LoadResult

    traces, expected = case("19")
    report = analyze(LoadResult(traces=traces, sources=[]))
    assert report.errors == []
    assert report.hta == {}
    assert report.verdict.ranks == [expected["late_rank"]]
    assert not any(f.kind in {"host_bound", "launch_bound"} for f in report.findings)


def test_windows_are_pooled(recorded) -> None:
    from rankscope.trace.files.load import LoadResult

    first, second = recorded("ddp_dataloader_stall"), recorded("ddp_dataloader_stall")
    for trace in second.traces:
        trace.window = 1
    one = analyze(first, hta=False)
    both = analyze(LoadResult(traces=first.traces + second.traces, sources=[]), hta=False)
    assert both.ranks[0].steps == 2 * one.ranks[0].steps
    assert both.ranks[0].compute_pct == pytest.approx(one.ranks[0].compute_pct)
    assert both.verdict.cost_ms_per_step == pytest.approx(one.verdict.cost_ms_per_step)
    assert both.verdict.p_value == pytest.approx(one.verdict.p_value**2)
    assert len(both.run.windows) == 2


def test_cut_to_one_rank_it_abstains(recorded) -> None:
    from rankscope.trace.files.load import LoadResult

    traces = recorded("ddp_slow_gpu").traces
    report = analyze(LoadResult(traces=traces[1:], sources=[]), hta=False)
    assert report.verdict.kind == "insufficient_data"
    assert [(r.rank, r.status) for r in report.ranks] == [(0, "missing"), (1, "ok")]


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.7), (0.3, 1.0), (0.2, 0.8)])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("name", "accused"), [("ddp_healthy", []), ("ddp_dataloader_stall", [1])])
def test_a_window_cut_on_one_rank_changes_no_verdict(recorded, name, accused, rank, low, high) -> None:
    loaded = recorded(name)
    cut(loaded.traces[rank], low, high)
    report = analyze(loaded, hta=False)
    assert report.errors == []
    assert report.verdict.ranks == accused
    assert report.collectives.matched_pct < 90
    assert "recorded by some ranks only" in report.collectives.unmatched


def test_without_launches_it_abstains(recorded) -> None:
    loaded = recorded("ddp_slow_gpu")
    for trace in loaded.traces:
        trace.events.launch[:] = -1
    report = analyze(loaded, hta=False)
    assert report.errors == []
    assert report.verdict.kind == "insufficient_data"
    assert "no recorded launch" in report.verdict.sentence


def cut(trace, low: float, high: float) -> None:
    """Keep only the events that start in this part of the trace."""
    events, calls = trace.events, trace.collectives
    first, length = int(events.start.min()), int(events.end.max() - events.start.min())
    keep = (events.start >= first + low * length) & (events.start <= first + high * length)
    number = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1)
    for column in fields(events):
        setattr(events, column.name, getattr(events, column.name)[keep])
    events.launch = number[events.launch].astype(np.int32)
    kept = keep[calls.event]
    for column in fields(calls):
        values = getattr(calls, column.name)
        listed = isinstance(values, list)
        setattr(calls, column.name, [v for v, k in zip(values, kept, strict=True) if k] if listed else values[kept])
    calls.event = number[calls.event].astype(np.int32)
