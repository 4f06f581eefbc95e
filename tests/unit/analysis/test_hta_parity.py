"""HTA over our columns equals HTA over its own parse: frames event by event, and every analysis used.

Runs with HolisticTraceAnalysis 0.5.0 and with its successor traceinsight (``make test-hta-next``).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.analysis.hta.adapter import run_hta, trace_analysis
from rankscope.analysis.hta.events import type_of
from rankscope.analysis.hta.numbers import MOST_NAMES
from rankscope.trace.columns import Events, RankTrace
from rankscope.trace.files.load import load_traces
from rankscope.trace.names import function
from support.archives import unpack

DATA = Path(__file__).parents[2] / "data"
SOURCES = (
    "public",
    "ddp_dataloader_stall",
    *(pytest.param(name, marks=pytest.mark.long) for name in ("dlrm", "fsdp2_gpu_bound")),
)

pytestmark = [pytest.mark.data, pytest.mark.filterwarnings("ignore")]


def breakdown(analysis: Any, which: int) -> Any:
    return analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=MOST_NAMES)[which]


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
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """HTA over our columns, HTA over its own parse of the same files, and our numbers of the same events."""
    folder = DATA / "traces" / request.param
    if request.param == "public":
        traces = load_traces(sorted((DATA / "public").glob("sampled*")), cache=False).traces
    else:
        if request.param == "dlrm":
            folder = unpack(DATA / "param_dlrm_8ranks.tar.gz", tmp_path_factory.mktemp("dlrm"))
        traces = load_traces([folder], cache=False).traces
    assert len(traces) >= 2
    its = theirs(traces)
    numbers, failed = run_hta([cut(t, its.t.traces[t.rank]["index"].to_numpy()) for t in traces])
    assert failed == []
    return ours(traces), its, numbers


@pytest.fixture
def pair(three: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    return three[:2]


def cut(trace: RankTrace, positions: Any) -> RankTrace:
    """Only these events: its parser drops the last step, and kernels launched before the first."""
    events = trace.events
    keep = np.flatnonzero(np.isin(events.position, positions))
    columns = {f.name: getattr(events, f.name)[keep] for f in dataclasses.fields(events)}
    row = np.full(len(events) + 1, -1, np.int32)
    row[keep] = np.arange(len(keep))
    return dataclasses.replace(trace, events=Events(**columns | {"launch": row[columns["launch"]]}))


def ours(traces: list[RankTrace]) -> Any:
    analysis = trace_analysis(traces)
    analysis.t._filter_irrelevant_gpu_kernels()  # its parser drops the last step and what came before the first
    for rank, frame in analysis.t.traces.items():  # as load_traces does after that
        analysis.t.traces[rank] = frame.set_index("index", drop=False).rename_axis(None)
    return analysis


def theirs(traces: list[RankTrace]) -> Any:
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # as ours is made
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
def test_analyses_are_equal(pair: tuple[Any, Any], name: str) -> None:
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


def records(frame: Any, *, indexed: bool = False) -> list[dict[str, Any]]:
    """Rows of its frames as ours are written. Those indexed by (rank, what) have the columns of ``describe``."""
    if not indexed:
        return list(frame.to_dict("records"))
    return [
        {"rank": rank, "what": what} | dict(zip((c[1] for c in frame.columns), row, strict=True))
        for (rank, what), row in zip(frame.index, frame.to_numpy().tolist(), strict=True)
    ]


def test_breakdowns_are_its_own(three: tuple[Any, Any, Any]) -> None:
    _, its, numbers = three
    for name in ("temporal_breakdown", "comm_comp_overlap"):
        for record in records(CALLS[name][0](its)):
            mine = numbers[name][str(record.pop("rank"))]
            assert mine == pytest.approx(record, abs=0.02, rel=1e-6), name
    frame = CALLS["idle_time_breakdown"][0](its)
    for rank in ranks_of(its):
        mine = {(r["stream"], r["idle_category"]): r for r in numbers["idle_time_breakdown"][str(rank)]}
        wanted = {(r["stream"], r["idle_category"]): r for r in records(frame[frame["rank"].eq(rank)])}
        assert set(mine) == set(wanted)
        events = its.t.traces[rank]
        if (events["stream"].ge(0) & events["index_correlation"].eq(0)).any():
            continue  # it takes the first event of the file for the launch of kernels whose launch is not recorded
        for key, record in wanted.items():
            assert mine[key]["idle_time"] == pytest.approx(record["idle_time"], abs=0.02, rel=1e-6), (rank, key)
            ratio = mine[key]["idle_time_ratio"]
            assert float("nan" if ratio is None else ratio) == pytest.approx(
                record["idle_time_ratio"], abs=0.011, nan_ok=True
            )


def test_the_kernel_breakdown_is_its_own(three: tuple[Any, Any, Any]) -> None:
    _, its, numbers = three
    frame = CALLS["kernel_breakdown"][0](its)
    for rank in ranks_of(its):
        for kind in ("COMPUTATION", "COMMUNICATION"):
            mine = {r["name"]: r for r in numbers["kernel_breakdown"][str(rank)] if r["kernel_type"] == kind}
            wanted = records(frame[frame["rank"].eq(rank) & frame["kernel_type"].eq(kind)])
            assert {r["name"] for r in wanted} == set(mine)
            whole = "others" not in mine  # else it says a kernel's sum for its mean, its shortest and its longest
            for record in wanted:
                for column in ("sum (us)", "mean (us)", "max (us)", "min (us)", "stddev") if whole else ("sum (us)",):
                    assert mine[record["name"]][column] == pytest.approx(record[column], rel=1e-6, abs=0.02)


@pytest.mark.parametrize(("name", "key"), [("queue_length", "stream"), ("memory_bandwidth", "name")])
def test_described_series_are_its_own(three: tuple[Any, Any, Any], name: str, key: str) -> None:
    _, its, numbers = three
    symbols = its.t.symbol_table
    is_old = name == "queue_length" and hasattr(symbols, "get_runtime_launch_events_query")
    if is_old and "cuLaunchKernelEx" in symbols.get_sym_id_map():
        pytest.skip("0.5.0 does not know that cuLaunchKernelEx launches kernels")
    for record in records(CALLS[name][0](its), indexed=True):
        rank, what = str(record.pop("rank")), record.pop("what")
        mine = dict(next(r for r in numbers[name][rank] if r[key] == what))
        for column in (key, "duration_at_max_queue_length", "relative_duration_at_max_queue_length"):
            mine.pop(column, None)
        if name == "memory_bandwidth" and mine["count"] != record["count"]:
            assert record["min"] < 1e-9 < mine["min"]  # it counts what rounding leaves of no bandwidth
            continue
        mine["std"] = float("nan") if mine["std"] is None else mine["std"]
        # times in whole microseconds are often equal; which of two comes first is up to the sort
        tolerance = 0.05 if name == "queue_length" else 1e-6
        assert mine == pytest.approx(record, rel=tolerance, abs=1e-6, nan_ok=True), (rank, what)


def test_the_numbers_of_gaps_are_its_own(three: tuple[Any, Any, Any]) -> None:
    _, its, numbers = three
    for rank in ranks_of(its):
        events = its.t.traces[rank]
        if (events["stream"].ge(0) & events["index_correlation"].eq(0)).any():
            continue  # as above
        frame = its.get_idle_time_breakdown(ranks=[rank], visualize=False, show_idle_interval_stats=True)[1]
        wanted = {(r["stream"], kind): r for kind, r in zip(frame.index, records(frame), strict=True)}
        found = {(r["stream"], r["idle_category"]): r for r in numbers["idle_time_breakdown"][str(rank)]}
        for key, record in wanted.items():
            mine = [float("nan") if found[key][c] is None else found[key][c] for c in ("count", "min", "50%", "max")]
            its_own = [record[c] for c in ("count", "min", "50%", "max")]
            assert mine == pytest.approx(its_own, abs=0.02, rel=1e-6, nan_ok=True), (rank, key)


def test_times_of_kernel_types_are_its_own(three: tuple[Any, Any, Any]) -> None:
    _, its, numbers = three
    wanted = {r["kernel_type"]: r["sum"] for r in records(breakdown(its, 0))}
    found = [r for rows in numbers["kernel_type_breakdown"].values() for r in rows]
    # it cuts each stretch of time to whole microseconds; of kernels on the device there are two ends each
    most = sum(int(frame["stream"].ge(0).sum()) for frame in its.t.traces.values())
    for kind in wanted.keys() | {r["kernel_type"] for r in found}:
        mine = sum(r["sum"] for r in found if r["kernel_type"] == kind)
        assert wanted.get(kind, 0) - 1 <= mine <= wanted.get(kind, 0) + 2 * most
    for rows in numbers["kernel_type_breakdown"].values():
        assert sum(r["percentage"] for r in rows) == pytest.approx(100, abs=0.05 * len(rows))


def test_launches_are_its_own(three: tuple[Any, Any, Any]) -> None:
    _, its, numbers = three
    for rank in ranks_of(its):
        frame = its.get_cuda_kernel_launch_stats(ranks=[rank], visualize=False)[rank]
        if "cuLaunchKernelEx" in its.t.symbol_table.get_sym_id_map():
            continue  # which it leaves out
        cpu, gpu, delay = (frame[name] for name in ("cpu_duration", "gpu_duration", "launch_delay"))
        assert numbers["launch_statistics"][str(rank)] == pytest.approx(
            {
                "launches": len(frame),
                "median_cpu_duration(us)": cpu.median(),
                "median_gpu_duration(us)": gpu.median(),
                "median_launch_delay(us)": delay.median(),
                "short_gpu_kernels": int(((cpu <= 50) & (gpu < cpu)).sum()),  # as its plots have them
                "runtime_outliers": int((cpu > 50).sum()),
                "launch_delay_outliers": int((delay > 100).sum()),
            },
            abs=0.002,
        )


def test_annotations_are_its_own(three: tuple[Any, Any, Any]) -> None:
    _, its, numbers = three
    for name, on_device in (("gpu_user_annotation", True), ("user_annotation", False)):
        frame = its.get_gpu_user_annotation_breakdown(use_gpu_annotation=on_device, visualize=False)
        wanted = [] if frame is None else [r for r in records(frame) if not r["name"].startswith("ProfilerStep#")]
        for rank in ranks_of(its):
            mine = {r["name"]: r for r in numbers["user_annotation_breakdown"][str(rank)] if r["annotation"] == name}
            own = {r["name"]: r for r in wanted if r["rank"] == rank}
            assert sum(r["sum (us)"] for r in mine.values()) == pytest.approx(sum(r["sum (us)"] for r in own.values()))
            for what in mine.keys() - {"others"}:
                for column in ("sum (us)", "mean (us)", "max (us)", "min (us)", "stddev"):
                    assert mine[what][column] == pytest.approx(own[what][column], rel=1e-6, abs=0.02)


def named(kernels: list[str]) -> str:
    """A sequence as ours are written."""
    more = [f"{len(kernels) - 6} more"] if len(kernels) > 6 else []
    return " -> ".join([*map(function, kernels[:6]), *more])


@pytest.mark.long
def test_frequent_sequences_are_its_own(
    three: tuple[Any, Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis

    _, its, numbers = three
    rank = ranks_of(its)[0]
    monkeypatch.setattr(CudaKernelAnalysis, "_overlay_frequent_patterns_with_trace", lambda *_: {})
    rows = numbers["frequent_kernel_sequences"][str(rank)]
    for operator in {row["operator"] for row in rows}:
        frame = its.get_frequent_cuda_kernel_sequences(operator, str(tmp_path), rank=rank, visualize=False)
        named_so = its.t.get_trace(rank)["name"].eq(its.t.symbol_table.get_sym_id_map()[operator])
        if its.t.get_trace(rank).loc[named_so, "depth"].nunique() > 1:
            continue  # of which it takes those at the least depth only
        wanted: dict[str, list[float]] = {}
        for record in records(frame):
            first, *kernels = record["pattern"].split("|")
            if first == operator:
                known = wanted.setdefault(named(kernels), [0, 0.0, 0.0])
                numbers_of = (record["count"], record["GPU kernel duration (us)"], record["CPU op duration (us)"])
                known[:] = [a + b for a, b in zip(known, numbers_of, strict=True)]
        for row in (row for row in rows if row["operator"] == operator):
            mine = [row[name] for name in ("count", "GPU kernel duration (us)", "CPU op duration (us)")]
            assert mine == pytest.approx(wanted[row["kernel_sequence"]], rel=1e-6, abs=0.02)


@pytest.mark.long
def test_kernels_of_operators_are_its_own(three: tuple[Any, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis

    _, its, numbers = three
    if all((frame["ts"] % 1).eq(0).all() for frame in its.t.traces.values()):
        pytest.skip("of operators that begin in the same microsecond, its sort decides which one is inside")
    monkeypatch.setattr(CudaKernelAnalysis, "visualize_aten_op_kernels_and_overhead", lambda *_: None)
    rank = ranks_of(its)[0]
    frame = its.get_aten_op_kernels_and_delay(ranks=[rank])[rank]
    wanted: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for record in records(frame):
        kernels = named(record["kernel_sequence"].split(" -> "))
        delays = (record["avg_aten_op_launch_delay"], record["avg_runtime_delay"])
        wanted.setdefault((record["aten_op_name"], kernels), []).append((record["occurrence_count"], *delays))
    for row in numbers["operator_kernels"][str(rank)]:
        its_own = wanted[row["aten_op_name"], row["kernel_sequence"]]
        count = sum(part[0] for part in its_own)
        delays = [sum(part[0] * part[i] for part in its_own) / count for i in (1, 2)]
        mine = [row["avg_aten_op_launch_delay"], row["avg_runtime_delay"]]
        assert (row["occurrence_count"], mine) == (count, pytest.approx(delays, abs=0.01))


def test_kernel_types_are_its_own(three: tuple[Any, Any, Any]) -> None:
    from hta.utils.utils import get_kernel_type

    _, its, _ = three
    names, codes = its.t.symbol_table.get_sym_table(), its.t.symbol_table.get_sym_id_map()
    device = [codes.get(kind, -1000) for kind in ("kernel", "gpu_memcpy", "gpu_memset")]
    used = {names[c] for f in its.t.traces.values() for c in f["name"][f["cat"].isin(device)].unique()}
    assert used
    assert {n: type_of(n) for n in used} == {n: get_kernel_type(n) for n in used}


def test_a_trace_without_a_device_has_the_same_frame() -> None:
    traces = load_traces(sorted((DATA / "public").glob("_hist1*")), cache=False).traces
    mine, its = ours(traces), theirs(traces)
    a, b = mine.t.traces[34].sort_index(), its.t.traces[34].sort_index()
    assert a.index.tolist() == b.index.tolist()
    np.testing.assert_allclose(a["dur"].to_numpy(float), b["dur"].to_numpy(float), atol=0.002)
    with pytest.raises(IndexError):  # what its analyses make of it, by either way; so it is never asked
        its.get_temporal_breakdown(visualize=False)
    assert run_hta(traces) == ({}, [])
