"""HTA's numbers in the report; ``test_hta_parity`` compares them with HTA."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope.analysis import pipeline
from rankscope.analysis.diagnosis import empty_report
from rankscope.analysis.hta.adapter import run_hta, trace_analysis
from rankscope.analysis.hta.table import BREAKDOWNS

pytestmark = pytest.mark.data


def test_all_its_analyses_run(recorded) -> None:
    results, failed = run_hta(recorded("ddp_slow_gpu").traces)
    assert failed == []
    assert set(results) == set(BREAKDOWNS)
    assert all(set(by_rank) == {"0", "1"} for by_rank in results.values())
    assert results["comm_comp_overlap"]["0"]["comp_comm_overlap_pctg"] <= 100


def test_the_page_names_the_analyses_that_do_not_run_on_our_columns(recorded) -> None:
    if version("HolisticTraceAnalysis") != "0.5.0":
        pytest.skip("the page is on 0.5.0")
    analysis = trace_analysis(recorded("ddp_dataloader_stall").traces)
    page = " ".join((Path(__file__).parents[3] / "docs" / "hta.md").read_text(encoding="utf-8").split())
    sentence = page.partition("Two of the nineteen analyses of HTA 0.5.0 cannot: ")[2].partition(". ")[0]
    fails = re.findall(r"`(\w+)`", sentence)
    assert len(fails) == 2
    wanted = {"critical_path_analysis": {"rank": 0, "annotation": "ProfilerStep", "instance_id": 1}}
    for name in fails:
        with pytest.raises((AttributeError, ValueError)):
            getattr(analysis, name)(**wanted.get(name, {}))


def test_every_window_has_its_own(recorded) -> None:
    first, second = recorded("ddp_healthy").traces, recorded("ddp_slow_gpu").traces
    for trace in second:
        trace.window = 1
    together, failed = run_hta([*second, *first])
    apart = run_hta(first)[0], run_hta(second)[0]
    assert failed == []
    for name, found in together.items():
        assert list(found) == ["0, window 0", "1, window 0", "0, window 1", "1, window 1"]
        for key, numbers in found.items():
            rank, window = key.split(", window ")
            assert numbers == apart[int(window)][name][rank]
    for trace in second:
        trace.attempt = 2
    assert list(run_hta([*first, *second])[0]["queue_length"])[2:] == ["0, window 2.1", "1, window 2.1"]


def test_ranks_without_a_device_are_left_out(case) -> None:
    assert run_hta(case("19")[0]) == ({}, [])


def test_one_failing_analysis_costs_only_itself(recorded, monkeypatch) -> None:
    def broken(_trace):
        raise ValueError("no luck")

    monkeypatch.setitem(BREAKDOWNS, "temporal_breakdown", broken)
    results, failed = run_hta(recorded("ddp_healthy").traces)
    assert [(e.where, e.message) for e in failed] == [("hta.temporal_breakdown", "ValueError: no luck")]
    assert "comm_comp_overlap" in results


def test_importing_the_analysis_does_not_import_hta() -> None:
    code = "import sys, rankscope.analysis.pipeline, rankscope.analysis.hta.adapter; sys.exit('hta' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0


def test_of_many_ranks_those_at_fault_and_one_other_are_computed() -> None:
    traces = [SimpleNamespace(rank=rank) for rank in range(65)]
    report = empty_report(None)
    report.verdict.ranks = [0, 9]
    assert [trace.rank for trace in pipeline.chosen(report, traces)] == [0, 1, 9]
    assert "of rank 0, 1, 9 only" in report.run.notes[-1]
    assert pipeline.chosen(report, traces[:64]) == traces[:64]
    assert len(report.run.notes) == 1
