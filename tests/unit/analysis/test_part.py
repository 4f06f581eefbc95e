"""Some steps or one window of what was recorded, in place of all of it."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from rankscope.analysis.part import only_part
from rankscope.analysis.pipeline import analyze
from rankscope.errors import ConfigError
from rankscope.records.codec import to_plain
from rankscope.trace.files.load import LoadResult

pytestmark = pytest.mark.data

STEPS = ((0, 1000), (1000, 1000), (2000, 1000), (3000, 1000))


@pytest.fixture
def loaded(make_trace) -> LoadResult:
    """Two ranks, four steps of 1 ms with a kernel and a call each. The last kernel of a step runs into the next one."""
    rows = [
        (name, 1000 * step + start, length)
        for step in range(4)
        for name, start, length in (("gemm", 100, 300), ("ncclDevKernel_AllReduce", 500, 100), ("tail", 950, 150))
    ]
    return LoadResult([make_trace(rank, rows, ranks=(0, 1), steps=STEPS) for rank in range(2)], [])


def kernels(load: LoadResult, rank: int = 0) -> list[tuple[str, int, int]]:
    trace = load.traces[rank]
    rows = np.flatnonzero(trace.events.stream >= 0)
    return [
        (trace.strings[trace.events.name[row]], int(trace.events.start[row]) // 1000, int(trace.events.step[row]))
        for row in rows.tolist()
    ]


@pytest.mark.parametrize("steps", [(1, 2), range(1, 3), slice(1, 3)])
def test_steps_are_cut_out_with_their_work(loaded: LoadResult, steps: slice) -> None:
    part, _ = only_part(loaded, None, steps=steps)
    trace = part.traces[1]
    assert trace.steps.number.tolist() == [1, 2]
    assert kernels(part, 1) == [
        ("tail", 950, -1),  # launched by step 0, and the device is still at it when step 1 begins
        *(("gemm", 1100, 0), ("ncclDevKernel_AllReduce", 1500, 0), ("tail", 1950, 0)),
        *(("gemm", 2100, 1), ("ncclDevKernel_AllReduce", 2500, 1), ("tail", 2950, 1)),
    ]
    assert len(trace.collectives) == 2
    assert [trace.strings[trace.events.name[e]] for e in trace.collectives.event] == ["ncclDevKernel_AllReduce"] * 2
    assert trace.events.launch[np.flatnonzero(trace.events.stream >= 0)[0]] == -1
    assert len(loaded.traces[1].steps) == 4  # the whole is left as it was
    assert part.notes == ["only steps 1 to 2 of what was recorded: the rest was left out, as asked for"]


def test_all_steps_are_the_whole(recorded) -> None:
    whole = recorded("ddp_dataloader_stall")
    part, _ = only_part(whole, None, steps=slice(0, None), window=0)
    before, after = to_plain(analyze(whole, hta=False)), to_plain(analyze(part, hta=False))
    assert after["run"].pop("notes") == [
        *before["run"].pop("notes"),
        "only window 0 and only steps from 0 on of what was recorded: the rest was left out, as asked for",
    ]
    assert after == before


def test_a_part_has_the_verdict_of_the_whole(recorded) -> None:
    report = analyze(only_part(recorded("gloo_ddp_input"), None, steps=(5, 7))[0], hta=False)
    assert sorted({row.step for row in report.steps}) == [5, 6, 7]
    assert (report.verdict.ranks, report.verdict.cause) == ([1], "input_stall")
    assert report.run.windows == ["steps 5 to 7, 2 ranks"]


def test_one_window_of_several(recorded) -> None:
    first, second = recorded("ddp_healthy"), recorded("ddp_slow_gpu")
    for trace in second.traces:
        trace.window = 1
    both = LoadResult([*first.traces, *second.traces], [*first.sources, *second.sources])
    part, _ = only_part(both, None, window=1)
    assert part.traces == second.traces
    assert [source.status for source in part.sources] == ["ignored", "ignored", "used", "used"]
    assert analyze(part, hta=False).verdict.ranks == [1]
    again = copy.deepcopy(second.traces)
    for trace in again:
        trace.attempt = 1
    both = replace(both, traces=[*both.traces, *again])
    with pytest.raises(ConfigError, match=r"window 1 was recorded in 2 attempts; name \(attempt, window\)"):
        only_part(both, None, window=1)
    part, _ = only_part(both, None, window=(1, 1))
    assert {trace.attempt for trace in part.traces} == {1}
    with pytest.raises(ConfigError, match=r"window 3 was not recorded; recorded: \(0, 0\), \(0, 1\), \(1, 1\)"):
        only_part(both, None, window=3)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((7, 9), "steps 7 to 9 were not recorded; there are steps 0 to 3"),
        (range(2, 2), "contains no step"),
        ((3, 2), "contains no step"),
        (slice(0, 4, 2), "only steps that follow each other"),
        (slice(-2, None), "not negative"),
        ("1-2", "is no range of step numbers"),
        ((1, 2, 3), "is no range of step numbers"),
    ],
)
def test_steps_that_do_not_exist(loaded: LoadResult, steps: slice, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        only_part(loaded, None, steps=steps)


def test_traces_without_steps(make_trace) -> None:
    trace = make_trace(0, [("gemm", 100, 300)], ranks=(0, 1), steps=())
    with pytest.raises(ConfigError, match=r"these have none: call the profiler's step\(\)"):
        only_part(LoadResult([trace], []), None, steps=(0, 1))
