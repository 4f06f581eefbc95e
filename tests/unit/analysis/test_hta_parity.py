"""HTA over our columns equals HTA over its own parse: the frames event by event, and every analysis that is called.

Runs with HolisticTraceAnalysis 0.5.0 and with its successor traceinsight (``make test-hta-next``).
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.analysis.hta import MOST_KERNELS, run_hta, trace_analysis
from rankscope.trace.columns import RankTrace
from rankscope.trace.load import load_traces

DATA = Path(__file__).parents[2] / "data"
SOURCES = ("public", "dlrm", "ddp_dataloader_stall", "fsdp2_gpu_bound")

pytestmark = [pytest.mark.data, pytest.mark.filterwarnings("ignore")]


def breakdown(analysis: Any, which: int) -> Any:
    return analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=MOST_KERNELS)[which]


def ranks_of(analysis: Any) -> list[int]:
    return sorted(analysis.t.traces)


# Name -> call, absolute tolerance in microseconds. 0.02 is their rounding; the times of kernel types are sums of
# intervals each cut to whole microseconds, so that the last digit of a double can decide about one.
CALLS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "temporal_breakdown": (lambda a: a.get_temporal_breakdown(visualize=False), 0.02),
    "comm_comp_overlap": (lambda a: a.get_comm_comp_overlap(visualize=False), 0.02),
    "idle_time_breakdown": (
        lambda a: a.get_idle_time_breakdown(ranks=ranks_of(a), visualize=False)[0].sort_values(
            ["rank", "stream", "idle_category"]
        ),
        0.02,
    ),
    "kernel_types": (lambda a: breakdown(a, 0).sort_values("kernel_type"), 5.0),
    "kernel_breakdown": (lambda a: breakdown(a, 1).sort_values(["kernel_type", "name", "rank"]), 0.02),
    "queue_length": (lambda a: a.get_queue_length_summary(ranks=ranks_of(a)), 0.02),
    "memory_bandwidth": (lambda a: a.get_memory_bw_summary(ranks=ranks_of(a)), 0.02),
    "launch_statistics": (
        lambda a: a.get_cuda_kernel_launch_stats(ranks=ranks_of(a), visualize=False)[0].sort_values("correlation"),
        0.02,
    ),
}


@pytest.fixture(scope="module", params=SOURCES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """HTA over our columns, and over its own parse of the same files."""
    folder = DATA / "traces" / request.param
    if request.param == "public":
        traces = load_traces(sorted((DATA / "public").glob("sampled*")), cache=False).traces
    else:
        if request.param == "dlrm":
            folder = tmp_path_factory.mktemp("dlrm")
            with tarfile.open(DATA / "param_dlrm_8ranks.tar.gz") as archive:
                archive.extractall(folder, filter="data")
        traces = load_traces([folder], cache=False).traces
    assert len(traces) >= 2
    return ours(traces), theirs(traces)


def ours(traces: list[RankTrace]) -> Any:
    analysis = trace_analysis(traces)
    analysis.t._filter_irrelevant_gpu_kernels()  # its parser drops the last step and what came before the first
    for rank, frame in analysis.t.traces.items():  # as load_traces does after that
        analysis.t.traces[rank] = frame.set_index("index", drop=False).rename_axis(None)
    return analysis


def theirs(traces: list[RankTrace]) -> Any:
    from hta.common.trace import Trace
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis.__new__(TraceAnalysis)
    analysis.t = Trace({t.rank: t.source for t in traces}, "/")
    analysis.t.load_traces(use_multiprocessing=False)
    return analysis


def test_frames_are_the_same(pair: tuple[Any, Any]) -> None:
    mine, its = pair
    assert ranks_of(mine) == ranks_of(its)
    for rank in ranks_of(its):
        a, b = mine.t.traces[rank].sort_index(), its.t.traces[rank].sort_index()
        b = b[~b["cat"].eq(its.t.symbol_table.get_sym_id_map().get("cuda_sync", -1000))]  # left out on purpose
        assert a.index.tolist() == b.index.tolist()
        for column in ("cat", "name"):
            words = [analysis.t.symbol_table.get_sym_table() for analysis in pair]
            assert [words[0][c] for c in a[column]] == [words[1][c] for c in b[column]]
        for column in ("ts", "dur"):  # its "end" stays on the clock, ours is ts + dur
            np.testing.assert_allclose(a[column].to_numpy(float), b[column].to_numpy(float), atol=0.002)
        columns = ["stream", "correlation", "bytes", "index_correlation", "iteration"]
        if its.t.symbol_table.get_sym_id_map().get("gpu_user_annotation") in set(b["cat"]):
            columns.remove("iteration")  # it believes the bounds of steps on the GPU, which begin and end too late
        for column in columns:
            assert a[column].astype("int64").tolist() == b[column].astype("int64").tolist(), column


@pytest.mark.parametrize("name", CALLS)
def test_analyses_say_the_same(pair: tuple[Any, Any], name: str) -> None:
    call, tolerance = CALLS[name]
    a, b = (call(analysis) for analysis in pair)
    assert list(a.columns) == list(b.columns)
    assert len(a) == len(b) > 0
    words = a.select_dtypes(exclude="number").columns
    assert a[words].to_numpy().tolist() == b[words].to_numpy().tolist()
    numbers = a.select_dtypes("number").columns
    np.testing.assert_allclose(
        a[numbers].to_numpy(float), b[numbers].to_numpy(float), rtol=1e-6, atol=tolerance, equal_nan=True
    )


def test_a_trace_without_a_device_has_the_same_frame() -> None:
    traces = load_traces(sorted((DATA / "public").glob("_hist1*")), cache=False).traces
    mine, its = ours(traces), theirs(traces)
    a, b = mine.t.traces[34].sort_index(), its.t.traces[34].sort_index()
    assert a.index.tolist() == b.index.tolist()
    np.testing.assert_allclose(a["dur"].to_numpy(float), b["dur"].to_numpy(float), atol=0.002)
    with pytest.raises(IndexError):  # what its analyses make of it, by either way; so it is never asked
        its.get_temporal_breakdown(visualize=False)
    assert run_hta(traces) == ({}, [])
