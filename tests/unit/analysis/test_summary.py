"""The summary of a rank: counts and times by hand, and the differences of two real runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rankscope.analysis.summary.rank_windows import summarise
from rankscope.analysis.summary.texts import LONGEST, Texts, kernel_name, operator_name
from rankscope.analysis.windows.all_windows import analyse_windows, usable
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.records.codec import from_json, to_json
from rankscope.records.rank_window import CallColumns, RankWindow, StepColumns, WorkColumns
from rankscope.trace.columns import Category, PythonCalls
from rankscope.trace.files.load import load_traces

DATA = Path(__file__).parents[2] / "data" / "traces"
GEMM, ALL_REDUCE = "void gemm<float>(float*)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def recorded(name: str) -> list[RankWindow]:
    def failed(where: str, error: Exception) -> None:
        raise AssertionError(where) from error

    (window,) = analyse_windows(usable(load_traces([DATA / name], workers=1, cache=False).traces), None, failed)
    return summarise(window)


def kinds(own: RankWindow) -> Counter[tuple[str, str, str]]:
    """Kind of work -> how often a rank runs it in its second step."""
    work = own.work
    return Counter(
        {
            (own.text(operator), own.text(shapes), own.text(name)): count
            for operator, shapes, name, step, count in zip(
                work.operator, work.shapes, work.name, work.step, work.count, strict=True
            )
            if step == 1
        }
    )


def test_counts_and_times_of_a_step(make_trace) -> None:
    """Two kernels of 30 and 50 us, an all-reduce of 1,000 floats to which rank 1 comes 40 us late, a kernel of 10 us of
    which the second half runs beside it on rank 0."""
    rows = [(GEMM, 100, 30), (GEMM, 200, 50), (ALL_REDUCE, 300, 100), (GEMM, 395, 10)]
    late = [(GEMM, 100, 30), (GEMM, 200, 50), (ALL_REDUCE, 340, 60), (GEMM, 450, 10)]
    traces = [
        make_trace(rank, own, ranks=(0, 1), sizes=[1000], steps=((0, 1000),)) for rank, own in enumerate((rows, late))
    ]
    traces[1] = replace(traces[1], meta=replace(traces[1].meta, device="Chip", versions={"torch": "2.0"}))
    first, second = summarise(analyse_window(traces))
    assert first.steps.launches == [4]
    assert first.work == WorkColumns(
        operator=[-1],
        shapes=[-1],
        name=[first.strings.index("gemm")],
        step=[0],
        count=[3],
        total_ns=[90_000],
        alone=[2],
        alone_ns=[80_000],
        alone_median_ns=[50_000],
    )
    assert (second.work.alone, second.work.alone_ns, second.work.alone_median_ns) == ([3], [90_000], [30_000])
    assert (first.device, second.device, second.versions) == ("unnamed accelerator", "Chip", {"torch": "2.0"})
    assert [first.text(kind) for kind in first.calls.kind] == ["all_reduce"]
    assert (first.calls.size, first.calls.bytes, first.calls.bus_bytes) == ([2], [4000], [4000])
    assert first.calls.wait_ns[0] - second.calls.wait_ns[0] == pytest.approx(40_000, abs=1000)
    assert first.calls.transfer_ns[0] == pytest.approx(60_000, abs=1000)
    assert first.calls.step == [0]


def test_modules_are_distinguished_by_their_classes(make_trace) -> None:
    """The same operator in two layers' Linear, in the model itself between them, and behind the model's call."""
    trace = make_trace(0, [(GEMM, at, 10) for at in (100, 200, 300, 400, 500)], ranks=(0,), steps=((0, 1000),))
    kernels = np.flatnonzero(trace.events.launch >= 0)
    operators = np.flatnonzero(trace.events.category == Category.CPU_OP)  # begin at 78, 178 ... us
    trace.events.external_id[kernels] = trace.events.external_id[operators] = np.arange(5)
    calls = [
        ("nn.Module: GPT_0", 50, 400),
        ("train.py(7): main", 60, 380),
        ("nn.Module: Block_0", 70, 100),
        ("nn.Module: Linear_0", 75, 20),
        ("nn.Module: Linear_1", 260, 40),
        ("nn.Module: Block_1", 360, 60),
        ("nn.Module: Linear_2", 370, 40),
    ]
    first = len(trace.strings)
    start, length = (np.array([call[i] for call in calls]) * 1000 for i in (1, 2))
    names = np.arange(first, first + len(calls), dtype=np.int32)
    trace = replace(
        trace,
        strings=[*trace.strings, *(name for name, _, _ in calls)],
        python=PythonCalls(start, length, names, np.ones(len(calls), np.int64)),
    )
    (own,) = summarise(analyse_window([trace]))
    found = {own.text(module): count for module, count in zip(own.work.module, own.work.count, strict=True)}
    assert found == {"GPT/Block/Linear": 2, "GPT": 1, "GPT/Linear": 1, "": 1}
    assert from_json(RankWindow, to_json(own)) == own


def test_extra_work_on_one_rank_is_what_two_runs_differ_in() -> None:
    """ddp_slow_gpu: rank 1 multiplies large matrices besides; rank 0 does exactly what both do in the healthy run."""
    healthy, slow = recorded("ddp_healthy"), recorded("ddp_slow_gpu")
    assert kinds(slow[0]) == kinds(healthy[0])
    assert slow[0].steps.launches == healthy[0].steps.launches
    new = kinds(slow[1]) - kinds(healthy[1])
    assert not kinds(healthy[1]) - kinds(slow[1])
    assert ("aten::mm", "[[4096,4096],[4096,4096]]") in {key[:2] for key in new}
    assert sum(slow[1].steps.launches) - sum(healthy[1].steps.launches) == 4 * sum(new.values()) + 4 * (
        slow[1].steps.copies[1] - healthy[1].steps.copies[1]
    )


def test_work_between_calls_is_all_that_the_replay_has() -> None:
    (window,) = analyse_windows(
        usable(load_traces([DATA / "ddp_healthy"], workers=1, cache=False).traces), None, lambda *_: None
    )
    assert window.replay is not None
    for column, own in enumerate(summarise(window)):
        segments, count = window.replay.segments, len(own.calls.kind)
        assert sum(own.calls.host_ns) == pytest.approx(segments.host[column, :count].sum(), abs=count)
        assert sum(own.calls.device_ns) == pytest.approx(segments.device[column, :count].sum(), abs=count)
        assert np.diff(own.calls.step).min() >= 0


def test_without_a_device_operators_are_the_work() -> None:
    own = recorded("gloo_ddp_none")[0]
    assert own.device is None
    counted = kinds(own)
    assert any(key[0] == "aten::linear" for key in counted)
    assert not any(key[0] == "aten::addmm" for key in counted)  # that is what aten::linear runs
    assert own.steps.launches == [sum(counted.values()) + own.calls.step.count(1)] * len(own.steps.number)


@pytest.mark.parametrize("name", ["ddp_healthy", "gloo_fsdp2_none", "graph_healthy"])
def test_it_is_written_and_read_again(name: str) -> None:
    for own in recorded(name):
        assert from_json(RankWindow, to_json(own)) == own


def test_names_do_not_depend_on_the_build() -> None:
    assert kernel_name("triton_poi_fused_add_mul_3") == kernel_name("triton_poi_fused_add_mul_17_0d1d2de")
    assert kernel_name("void at::native::vectorized_elementwise_kernel<4, F>(int, F)") == (
        "at::native::vectorized_elementwise_kernel"
    )
    assert operator_name("Torch-Compiled Region: 0/0") == operator_name("Torch-Compiled Region: 1/2")
    assert operator_name("## Call CompiledFxGraph fk4xzq ##") == operator_name("## Call CompiledFxGraph fabc ##")
    assert operator_name("aten::mm") == "aten::mm"


def test_long_texts_are_cut_and_stay_apart() -> None:
    texts = Texts()
    places = {texts.place("x" * LONGEST + end) for end in "ab"} | {texts.place("short"), texts.place("short")}
    assert (len(places), texts.place("")) == (3, -1)
    assert max(map(len, texts.strings)) < LONGEST + 20


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"steps": StepColumns(number=[1, 2])}, "steps.length_ns has 0 rows, the table 2"),
        ({"calls": CallColumns(kind=[0])}, "calls.group has 0 rows, the table 1"),
        ({"schema_version": "2.0"}, "schema 2.0 is not known, 1.1 is"),
        (
            {"work": WorkColumns(**{name: [5] for name in vars(WorkColumns())})},
            "points outside of the 0 that there are",
        ),
    ],
)
def test_tables_that_do_not_fit_are_refused(tables: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankWindow(rank=0, attempt=0, window=0, **tables)  # type: ignore[arg-type]
