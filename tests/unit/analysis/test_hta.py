"""HTA over our columns says what HTA says over its own parse, where that can read the trace."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rankscope.analysis.breakdowns import BREAKDOWNS
from rankscope.analysis.hta import run_hta, trace_analysis

from .conftest import DATA

pytestmark = pytest.mark.data


@pytest.mark.parametrize("name", ["ddp_dataloader_stall", "fsdp2_gpu_bound"])
@pytest.mark.filterwarnings("ignore")
def test_the_same_numbers_as_hta_s_own_parse(recorded, name, monkeypatch, tmp_path) -> None:
    import numpy as np

    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    from hta.common.trace import Trace
    from hta.trace_analysis import TraceAnalysis

    ours = trace_analysis(recorded(name).traces)
    ours.t._filter_irrelevant_gpu_kernels()  # its parser drops the last step and what came before the first
    theirs = TraceAnalysis.__new__(TraceAnalysis)
    theirs.t = Trace({r: str(DATA / "traces" / name / f"rank_{r}.json.gz") for r in (0, 1)}, "/")
    theirs.t.load_traces(use_multiprocessing=False)
    for call in (
        lambda a: a.get_temporal_breakdown(visualize=False),
        lambda a: a.get_comm_comp_overlap(visualize=False),
        lambda a: a.get_idle_time_breakdown(ranks=[0, 1], visualize=False)[0].sort_values(
            ["rank", "stream", "idle_category"]
        ),
    ):
        a, b = call(ours), call(theirs)
        assert list(a.columns) == list(b.columns)
        numbers = a.select_dtypes("number").columns
        np.testing.assert_allclose(a[numbers].to_numpy(), b[numbers].to_numpy(), rtol=1e-6, atol=0.02)


def test_all_its_analyses_run(recorded) -> None:
    results, failed = run_hta(recorded("ddp_slow_gpu").traces)
    assert failed == []
    assert set(results) == {
        "temporal_breakdown", "comm_comp_overlap", "idle_time_breakdown", "kernel_breakdown", "queue_length",
        "memory_bandwidth",
    }  # fmt: skip
    assert all(set(by_rank) == {"0", "1"} for by_rank in results.values())
    assert results["comm_comp_overlap"]["0"]["comp_comm_overlap_pctg"] <= 100


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
    code = "import sys, rankscope.analysis.pipeline, rankscope.analysis.hta; sys.exit('hta' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0
