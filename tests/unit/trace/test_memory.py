"""Allocator totals from hand-made events; every expected number is added up by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.trace.columns import DeviceMemory
from rankscope.trace.files.cache import load_cached, store_cached
from rankscope.trace.kineto import build
from rankscope.trace.kineto import chunks as split
from rankscope.trace.kineto.build import read_trace

Write = Callable[..., Path]
Make = Callable[..., dict[str, Any]]


def memory(ts: Any, size: int, allocated: Any, reserved: Any, device: int = 0, kind: Any = 1) -> dict[str, Any]:
    """As torch 2.13 writes it."""
    args = {
        "Total Reserved": reserved, "Total Allocated": allocated, "Bytes": size, "Device Id": device,
        "Device Type": kind, "Addr": 140685411876864, "finished": False, "Ev Idx": 5380,
    }  # fmt: skip
    return {
        "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args
    }  # fmt: skip


@pytest.fixture
def steps(make_event: Make) -> list[dict[str, Any]]:
    """Three steps: [100, 200), [200, 300) and [320, 400) us."""
    return [
        make_event(start, length, cat="user_annotation", name=f"ProfilerStep#{number}", pid=1, tid=1)
        for number, start, length in ((7, 100, 100), (8, 200, 100), (9, 320, 80))
    ]


DEVICE = [
    memory(110, -512, 4096, 10_000),  # so 4608 bytes were held when the recording began
    memory(150.5, 100, 4196, 10_000),
    memory(250, 2048, 6244, 20_000),
    memory(260, -2048, 4196, 20_000),
    memory(310, 9000, 13_196, 20_000),  # between two steps
    memory(315, -9000, 4196, 20_000),
    memory(350, 100, 4296, 30_000),
    memory(360, -3000, 1296, 15_000),
]
HELD = DeviceMemory(
    device=0,
    peak_allocated=13_196,
    peak_reserved=30_000,
    end_allocated=1296,
    end_reserved=15_000,
    step_peaks=[4608, 6244, 4296],
)


@pytest.mark.parametrize("layout", ["kineto", "compact"])
@pytest.mark.parametrize("base", [0, 10**18])
def test_peaks_of_the_window_and_of_its_steps(write_trace: Write, steps: list[Any], layout: str, base: int) -> None:
    path = write_trace(steps + DEVICE, layout=layout, baseTimeNanoseconds=base)
    assert read_trace(path).memory == [HELD]


def test_the_order_of_the_file_is_that_of_threads_not_of_time(write_trace: Write, steps: list[Any]) -> None:
    assert read_trace(write_trace(DEVICE[4:] + steps + DEVICE[:4])).memory == [HELD]


def test_chunks_are_joined(write_trace: Write, steps: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    real = split.split
    monkeypatch.setattr(build, "split", lambda blocks, name: real(blocks, name, chunk_bytes=700))
    monkeypatch.setattr("rankscope.trace.read.BLOCK_BYTES", 300)
    assert read_trace(write_trace(steps + DEVICE)).memory == [HELD]


def test_host_memory_is_no_device_memory(write_trace: Write, steps: list[Any]) -> None:
    host = [memory(120, 8, 10**12, 0, device=-1, kind=0), memory(121, 8, 10**12, 0, device=0, kind=0)]
    assert read_trace(write_trace(steps + host)).memory == []
    assert read_trace(write_trace(host + steps + DEVICE)).memory == [HELD]


def test_each_device_has_its_own(write_trace: Write, steps: list[Any]) -> None:
    other = memory(250, 64, 70, 80, device=3)
    found = read_trace(write_trace([*steps, other, *DEVICE])).memory
    assert found == [HELD, DeviceMemory(3, 70, 80, 70, 80, [6, 70, 70])]


def test_without_steps_there_is_only_the_window(write_trace: Write, make_event: Make) -> None:
    (found,) = read_trace(write_trace([make_event(0, 1000), *DEVICE])).memory
    assert (found.peak_allocated, found.step_peaks) == (13_196, [])


def test_what_tells_no_totals_is_left_out(write_trace: Write, steps: list[Any]) -> None:
    """The first is as in a trace of 2021."""
    old = {"Device Type": 1, "Device Id": 0, "Bytes": 512}
    others = [
        memory(120, 1, 1, 1) | {"args": old},
        memory(120, 1, 10**9, 10**9) | {"name": "[OutOfMemory]"},
        memory(120, 1, "many", 1),
        memory(120, 1, 10**9, None),
        memory(120, 1, 10**9, 10**9, kind="CUDA"),
        memory("soon", 1, 10**9, 10**9),
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 400},
    ]
    trace = read_trace(write_trace(steps + DEVICE + others))
    assert trace.memory == [HELD]
    assert trace.repairs == {}


@pytest.mark.parametrize("args", [[1], "text", None])
def test_markers_of_any_shape_harm_nobody(write_trace: Write, steps: list[Any], args: Any) -> None:
    trace = read_trace(write_trace([*steps, memory(1, 1, 1, 1) | {"args": args}, *DEVICE]))
    assert (len(trace.events), trace.memory) == (3, [HELD])


def test_a_broken_neighbour_costs_nothing(tmp_path: Path, write_trace: Write, steps: list[Any]) -> None:
    path = write_trace([*steps, *DEVICE[:3], memory(251, 0, 6244, 20_000) | {"name": "QUOTE"}, *DEVICE[3:]])
    path.write_text(path.read_text().replace("QUOTE", 'a "quoted" name'))
    assert read_trace(path).memory == [HELD]


def test_the_cache_keeps_it(write_trace: Write, steps: list[Any]) -> None:
    path = write_trace(steps + DEVICE)
    assert store_cached(path, read_trace(path))
    cached = load_cached(path)
    assert cached is not None
    assert json.dumps(cached.memory[0].step_peaks) == "[4608, 6244, 4296]"
    assert cached.memory == [HELD]
