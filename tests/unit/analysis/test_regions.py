"""Regions of a hand-made trace."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rankscope.analysis.tables.regions import is_region, region_rows
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.trace.columns import Category


def with_regions(trace, *regions: tuple[str, int, int]):
    """Add ranges (name, start, duration; us) of the training thread, which is thread 1 of process 1."""
    events = trace.events
    trace.strings = [*trace.strings, *dict.fromkeys(name for name, _, _ in regions)]
    start = np.array([s for _, s, _ in regions], np.int64) * 1000
    size = len(regions)
    added = {
        "start": start,
        "duration": np.array([d for _, _, d in regions], np.int64) * 1000,
        "name": np.array([trace.strings.index(name) for name, _, _ in regions], np.int32),
        "category": np.full(size, Category.USER_ANNOTATION, np.int8),
        "pid": np.ones(size, np.int64),
        "tid": np.ones(size, np.int64),
        "step": (np.searchsorted(trace.steps.start, start, side="right") - 1).astype(np.int32),
    }
    columns = {}
    for field in dataclasses.fields(events):
        own = getattr(events, field.name)
        more = added.get(field.name, np.full(size, -1, own.dtype))
        columns[field.name] = np.concatenate((own, more.astype(own.dtype)))
    order = np.argsort(columns["start"], kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    launch = columns["launch"]
    columns["launch"] = np.where(launch >= 0, place[launch], -1).astype(np.int32)
    trace.events = type(events)(**{name: values[order] for name, values in columns.items()})
    return trace


def test_by_hand(make_trace) -> None:
    """Two steps of 1,000 us; kernels of 100 us begin at 100, 400 and 500, and are launched 20 us before.

    *a* lasts from 50 to 350 and again, in the second step, from 1,000 to 1,100: 400 us in two steps are 200 us each,
    with one call each. Inside of the first, *a* again, and *b* from 70 to 90: it launches the first kernel (at 80). The
    others are launched at 380 and 480, outside of all.
    """
    rows = [("gemm", 100, 100), ("gemm", 400, 100), ("gemm", 500, 100)]
    trace = make_trace(0, rows, ranks=(0,), steps=((0, 1000), (1000, 1000)))
    regions = [("a", 50, 300), ("a", 60, 100), ("b", 70, 20), ("a", 1000, 100), ("Optimizer.step#SGD.step", 0, 900)]
    view = analyse_window([with_regions(trace, *regions)]).views[0]
    a, b = region_rows([view])
    assert (a.region, a.ranks, a.calls_per_step) == ("a", 1, 1.0)
    assert (a.host_ms, a.device_ms) == (pytest.approx(0.2), pytest.approx(0.05))
    assert (b.region, b.calls_per_step, b.host_ms, b.device_ms) == ("b", 0.5, pytest.approx(0.01), pytest.approx(0.05))
    assert a.host_ms_by_rank == {"0": pytest.approx(0.2)}


def test_the_rank_that_takes_longest_is_named(make_trace) -> None:
    traces = [
        with_regions(make_trace(rank, [("gemm", 100, 100)], ranks=(0, 1, 2)), ("data", 10, (20, 50, 30)[rank]))
        for rank in range(3)
    ]
    (row,) = region_rows(analyse_window(traces).views)
    assert (row.host_ms, row.host_rank, row.ranks) == (pytest.approx(0.03), 1, 3)
    assert row.host_ms_by_rank == {"0": pytest.approx(0.02), "1": pytest.approx(0.05), "2": pytest.approx(0.03)}


@pytest.mark.parametrize(
    "name",
    [
        *("ProfilerStep#3", "Optimizer.zero_grad#AdamW.zero_grad", "FSDP::all_gather (blocks.1)", "nccl:all_reduce"),
        *("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "DistributedDataParallel.forward"),
        *("rankscope.step#3", "rankscope.mark: checkpoint", "## Call CompiledFxGraph fqgc", "gloo:send"),
    ],
)
def test_what_pytorch_and_rankscope_write_is_no_region(name: str) -> None:
    assert not is_region(name)


@pytest.mark.parametrize("name", ["## forward ##", "attention", "Optimizer", "nccl", "[pl]train_dataloader_next"])
def test_what_scripts_and_libraries_write_is_one(name: str) -> None:
    assert is_region(name)
