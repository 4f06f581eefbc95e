"""JSON of every type and layout -> exact columns."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.errors import TraceError
from rankscope.trace.columns import Category
from rankscope.trace.kineto import build, numbers, repair
from rankscope.trace.kineto import chunks as split
from rankscope.trace.kineto.build import read_trace
from rankscope.trace.kineto.decode import Decoder
from rankscope.trace.kineto.events import NO_RAW, category_code

Write = Callable[..., Path]
Make = Callable[..., dict[str, Any]]


@given(st.integers(0, (1 << 43) * 1000 - 1), st.integers(0, 10**12))
def test_relative_times_keep_every_nanosecond(ns: int, ns2: int) -> None:
    as_floats = [float(f"{ns // 1000}.{ns % 1000:03d}"), float(f"{ns2 // 1000}.{ns2 % 1000:03d}")]
    times, raw = numbers.nanoseconds(as_floats)
    assert times.tolist() == [ns, ns2]
    assert raw is None or not numbers.needs_exact_text(raw)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1773285899055563.748", 1773285899055563748),
        (Decimal("1773285899055563.748"), 1773285899055563748),
        (12, 12000),
        ("12", 12000),
        ("", numbers.BAD),
        ("NaN", numbers.BAD),
        (None, numbers.BAD),
        (True, numbers.BAD),
        ([1], numbers.BAD),
        (10**30, numbers.BAD),
        (Decimal("1e999999"), numbers.BAD),
        (float("nan"), numbers.BAD),
    ],
)
def test_times_of_any_type(value: Any, expected: int) -> None:
    assert numbers.nanoseconds([value, "0"])[0].tolist() == [expected, 0]


def test_wild_plain_numbers_are_no_times() -> None:
    assert numbers.nanoseconds([1 << 62, 1])[0].tolist() == [numbers.BAD, 1000]
    assert numbers.nanoseconds([1e300, 1.5])[0].tolist() == [numbers.BAD, 1500]


def test_absolute_floats_are_read_again_as_decimals(tmp_path: Path) -> None:
    text = (
        '{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1773285899055663.748,"dur":53.301}]}'
    )
    path = tmp_path / "rank0.json"
    path.write_text(text)
    events = read_trace(path).events
    assert events.start.tolist() == [1773285899055663748]
    assert events.duration.tolist() == [53301]


@pytest.mark.parametrize("layout", ["kineto", "compact", "0", "1", "2", "4"])
@pytest.mark.parametrize("name", ["rank_0.json", "rank_0.json.gz"])
def test_layouts_in_small_chunks(
    write_trace: Write, make_event: Make, monkeypatch: pytest.MonkeyPatch, layout: str, name: str
) -> None:
    real = split.split
    monkeypatch.setattr(build, "split", lambda blocks, name: real(blocks, name, chunk_bytes=700))
    monkeypatch.setattr("rankscope.trace.read.BLOCK_BYTES", 300)
    args = {"stream": 7, "correlation": 3, "grid": [1, 2], "block": [], "nested": [{"a": 1}, {"b": "},{"}]}
    sent = [make_event(10 * i, 5, name=f"k{i % 7}", args=args) for i in range(200)]
    sent.insert(50, {"ph": "s", "id": 1, "pid": 0, "tid": 7, "ts": 1, "cat": "ac2g", "name": "ac2g"})
    trace = read_trace(write_trace(sent, name=name, layout=layout, baseTimeNanoseconds=10**18))
    assert trace.events.start.tolist() == [10**18 + 10_000 * i for i in range(200)]
    assert trace.events.position.tolist() == [i for i in range(201) if i != 50]
    assert [trace.strings[c] for c in trace.events.name.tolist()] == [f"k{i % 7}" for i in range(200)]
    assert not trace.repairs
    assert trace.strings[trace.events.shape[0]].replace(" ", "").replace("\n", "") == "grid[1,2]block[]"


def test_metadata_with_the_rhythm_of_the_events(
    write_trace: Write, make_event: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = split.split
    monkeypatch.setattr(build, "split", lambda blocks, name: real(blocks, name, chunk_bytes=400))
    monkeypatch.setattr("rankscope.trace.read.BLOCK_BYTES", 100)
    path = write_trace([make_event(i, 1) for i in range(9)])
    device = '{\n   "id": 0, "name": "GPU of some make", "x": [{"y": 1}]\n  }'
    devices = ",\n  ".join([device] * 40)
    text = path.read_text()
    path.write_text(text[:-2] + ',\n "deviceProperties": [\n  ' + devices + '\n  ],\n "baseTimeNanoseconds": 7\n}')
    trace = read_trace(path)
    assert len(trace.events) == 9
    assert trace.meta.device == "GPU of some make"
    assert trace.meta.base_ns == 7
    assert len(trace.meta.raw["deviceProperties"]) == 40


def test_empty_list_of_events(write_trace: Write) -> None:
    with pytest.raises(TraceError, match="no usable event"):
        read_trace(write_trace([]))


def test_truncated_gzip_gives_what_is_there(write_trace: Write, make_event: Make) -> None:
    path = write_trace([make_event(i, 1, name=f"kernel number {i * 7919}") for i in range(5000)], name="rank_0.json.gz")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    trace = read_trace(path)
    assert 1000 < len(trace.events) < 4500
    assert trace.repairs == {repair.TRUNCATED: 1}
    assert "truncated gzip" in trace.notes[0]


def test_text_cut_within_an_event(write_trace: Write, make_event: Make) -> None:
    path = write_trace([make_event(i, 1) for i in range(10)])
    text = path.read_bytes()
    path.write_bytes(text[: text.rfind(b'"dur"')])
    trace = read_trace(path)
    assert len(trace.events) == 9
    assert trace.repairs == {repair.TRUNCATED: 1}


def test_joined_gzip_members(write_trace: Write, make_event: Make) -> None:
    path = write_trace([make_event(i, 1) for i in range(10)])
    text = path.read_bytes()
    path.write_bytes(gzip.compress(text[:500]) + gzip.compress(text[500:]) + b"\0" * 100)
    trace = read_trace(path)
    assert len(trace.events) == 10
    assert not trace.repairs


@pytest.mark.parametrize("token", ["NaN", "-nan", "Infinity", "-inf"])
def test_tokens_that_are_no_json(write_trace: Write, make_event: Make, token: str) -> None:
    args = {"stream": 7, "correlation": 1, "bytes": 8, "memory bandwidth (GB/s)": 0.5}
    path = write_trace([make_event(i, 1, cat="gpu_memcpy", name="copy: NaN", args=args) for i in range(3)])
    path.write_text(path.read_text().replace("0.5", token, 1))
    trace = read_trace(path)
    assert trace.events.bandwidth_gb_s.tolist() == [0, 0.5, 0.5]
    assert trace.strings[trace.events.name[0]] == "copy: NaN"
    assert sum(trace.repairs.values()) == 1


def test_a_number_beyond_doubles_costs_nothing_else(write_trace: Write, make_event: Make) -> None:
    path = write_trace([make_event(i, 1, cat="Memcpy", args={"memory bandwidth (GB/s)": 0.5}) for i in range(3)])
    path.write_text(path.read_text().replace("0.5", "1e999", 1))
    assert read_trace(path).events.bandwidth_gb_s.tolist() == [0, 0.5, 0.5]


def test_odd_identifiers(write_trace: Write, make_event: Make) -> None:
    sent = [
        make_event(
            0, 1, pid="Spans", tid="stream 7", args={"stream": 7, "correlation": 2**64 - 1, "External id": 10**30}
        ),
        make_event(1, 1, pid="12", tid="text", args={"stream": "9", "correlation": None, "external id": 5}),
        make_event(2, 1, args=None),
        make_event(3, 1, args=[1], name=None, cat="Kernel"),
        make_event(4, 1, cat=["kernel"]),
        7,
        None,
        {"ph": 3},
        make_event(5, 1, args={"stream": 7.0, "correlation": "x"}),
    ]
    trace = read_trace(write_trace(sent))
    events = trace.events
    assert events.pid.tolist() == [-3, 12, 0, 0, 0]
    assert events.tid.tolist() == [7, -2, 7, 7, 7]
    assert events.stream.tolist() == [7, 9, 7, 7, 7]
    assert events.correlation.tolist() == [-1, -1, -1, -1, -1]
    assert events.external_id.tolist() == [-1, 5, -1, -1, -1]
    assert events.position.tolist() == [0, 1, 2, 3, 8]
    assert (events.category == Category.KERNEL).all()


def test_python_frames_are_kept_apart_and_short_calls_of_built_ins_are_not(
    write_trace: Write, make_event: Make
) -> None:
    """Of ten events five are operators, two calls of a function, two short built-in calls, one a long one."""
    names = {1: "train.py(12): main", 3: "<built-in function len>", 5: "train.py(40): step"}
    names |= {7: "<built-in function isinstance>", 9: "<built-in function sleep>"}
    sent = [
        make_event(i, 500 if i == 9 else 1, name=names.get(i, "aten::mm"), cat="python_function" if i % 2 else "cpu_op")
        for i in range(10)
    ]
    trace = read_trace(write_trace(sent))
    python = trace.python
    assert len(trace.events) == 5
    assert [trace.strings[code] for code in python.name.tolist()] == [names[1], names[5], names[9]]
    assert python.duration.tolist() == [1_000, 1_000, 500_000]
    assert trace.dropped == {"python_function": 2}
    assert not trace.repairs
    assert not any("python_function" in note for note in trace.notes)


def test_an_event_beyond_repair_is_located(write_trace: Write, make_event: Make) -> None:
    path = write_trace([make_event(i, 1, name="here" if i == 1 else "k") for i in range(3)])
    text = path.read_text()
    path.write_text(text.replace('"name": "here"', '"name" here'))
    trace = read_trace(path)
    assert trace.events.position.tolist() == [0, 2]
    assert trace.repairs == {repair.UNREADABLE: 1}
    place = text.rfind("{", 0, text.rfind("{", 0, text.index("here") + 1) + 1)
    assert f"byte {place}" in trace.notes[0]


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.trace.read.RATIO_APPLIES_FROM", 1 << 20)
    path = tmp_path / "rank_0.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents":[{"ph":"X","name":"' + b"a" * (8 << 20) + b'"}]}', 9))
    with pytest.raises(TraceError, match="expand"):
        read_trace(path)


@pytest.mark.parametrize(
    "text", [b"", b"   ", b"{}", b'{"traceEvents": 5}', b"[", b"[]", b"[1,2]", b'{"traceEvents":[', b"\xff\xfe"]
)
def test_no_trace_at_all(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "rank_0.json"
    path.write_bytes(text)
    with pytest.raises(TraceError, match="rank_0"):
        read_trace(path)


def test_without_isal_the_result_is_the_same(
    write_trace: Write, make_event: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zlib

    path = write_trace([make_event(i, 1) for i in range(100)], name="rank_0.json.gz")
    first = read_trace(path).events
    monkeypatch.setattr("rankscope.trace.read._inflate", zlib)
    assert np.array_equal(read_trace(path).events.start, first.start)


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("mtia_ccp_events", Category.KERNEL),
        ("hpu_op", Category.KERNEL),
        ("collective_comm", Category.KERNEL),
        ("npu_kernel", Category.KERNEL),
        ("npu_memcpy", Category.GPU_MEMCPY),
        ("mtia_runtime", Category.CUDA_RUNTIME),
        ("xpu_runtime", Category.CUDA_RUNTIME),
        ("privateuse1_driver", Category.CUDA_DRIVER),
        ("glow_runtime", Category.CUDA_RUNTIME),
        ("xpu_sync", Category.CUDA_SYNC),
        ("something_new", Category.OTHER),
    ],
)
def test_classes_of_other_accelerators(name: str, category: Category) -> None:
    assert category_code(name) == category


def test_columns_of_each_category(write_trace: Write, make_event: Make) -> None:
    copy = {"stream": 9, "correlation": 5, "bytes": 64, "memory bandwidth (GB/s)": 1.5}
    sent = [
        make_event(0, 9, cat="cpu_op", args={"External id": 3, "Input Dims": [[2, 3], []], "bytes": 1}),
        make_event(1, 9, cat="cuda_runtime", name="cudaMemcpyAsync", args={"correlation": 5, "stream": 9}),
        make_event(2, 9, cat="gpu_memcpy", args=copy),
        make_event(3, 9, cat="gpu_user_annotation", args={"External id": 3}),
        make_event(4, 9, cat="cuda_sync", args={"stream": 4294967295}),
        make_event(5, 9, cat="something_new"),
    ]
    trace = read_trace(write_trace(sent))
    events = trace.events
    assert [Category(c).name for c in events.category.tolist()] == [
        "CPU_OP",
        "CUDA_RUNTIME",
        "GPU_MEMCPY",
        "GPU_USER_ANNOTATION",
        "CUDA_SYNC",
        "OTHER",
    ]
    assert events.stream.tolist() == [-1, -1, 9, -1, -1, -1]
    assert events.bytes.tolist() == [-1, -1, 64, -1, -1, -1]
    assert events.bandwidth_gb_s.tolist() == [0, 0, 1.5, 0, 0, 0]
    assert events.correlation.tolist() == [-1, 5, 5, -1, -1, 1]
    assert events.launch.tolist() == [-1, -1, 1, -1, -1, -1]
    assert (events.shape >= 0).tolist() == [True] + [False] * 5
    assert "".join(trace.strings[events.shape[0]].split()) == "[[2,3],[]]"


def test_the_layout_of_torch_2_13(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first event stands after an empty line, the others do not; a lone comma may follow the last argument."""
    lines = [
        '"ph": "X",',
        '"cat": "cpu_op",',
        '"name": "x",',
        '"pid": 1,',
        '"tid": 1,',
        '"ts": %d.500,',
        '"dur": 0.972',
        ",",
    ]
    one = "{\n    " + "\n    ".join(lines) + '\n    "args": {\n      "External id": 1,"Ev Idx": 1\n    }\n  }'
    body = ",\n  ".join(one.replace("%d", str(i)) for i in range(100))
    path = tmp_path / "rank_0.json"
    path.write_text('{\n "schemaVersion": 1,\n "traceEvents": [\n    \n  ' + body + '\n  ],"traceName": "x" }\n')
    seen: list[str] = []
    real = split.split

    def spy(blocks: Any, name: str) -> Any:
        for part in real(blocks, name, chunk_bytes=2000):
            seen.append(part.kind)
            yield part

    monkeypatch.setattr(build, "split", spy)
    monkeypatch.setattr("rankscope.trace.read.BLOCK_BYTES", 5000)
    trace = read_trace(path)
    assert trace.events.start.tolist() == [1000 * i + 500 for i in range(100)]
    assert trace.events.duration.tolist() == [972] * 100
    assert seen.count("events") > 3


def test_kept_arguments_do_not_keep_the_text(write_trace: Write, make_event: Make) -> None:
    """Raw JSON is a view of the chunk: one collective a chunk would hold the whole file in memory."""
    args = {"stream": 9, "Collective name": "allreduce", "grid": [1], "block": [2], "Input Dims": [[3]]}
    decoder = Decoder()
    rows, _ = decoder.chunk(json.dumps(make_event(0, 1, args=args)).encode(), 0, b"")
    ((_, kept),) = rows.comms
    assert kept.collective == "allreduce"
    assert all(raw is NO_RAW for raw in (kept.dims, kept.grid, kept.block))


def test_names_of_any_length_are_distinguished(write_trace: Write, make_event: Make) -> None:
    long = ["n" * 100_000 + end for end in "ab"]
    events = [make_event(float(n), 1.0, name=name) for n, name in enumerate([*long, long[0], "aten::mm"])]
    trace = read_trace(write_trace(events))
    names = [trace.strings[code] for code in trace.events.name]
    assert len(set(names)) == 3
    assert names[0] == names[2] != names[1]
    assert max(map(len, names)) <= 1 << 14
    assert names[0].endswith(f"... (100001 characters, CRC-32 {zlib.crc32(long[0].encode()):08x})")
