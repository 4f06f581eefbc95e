"""Snapshots of device memory, hand-made in PyTorch's format; every expected number is added up by hand."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rankscope.analysis.memory.rows import memory_rows
from rankscope.analysis.memory.snapshot import BEFORE, NO_FRAME, _holder, load_snapshot, memory_row
from rankscope.analysis.pipeline import analyze
from rankscope.errors import TraceError
from rankscope.records.rows import MemoryFrame, MemoryRow
from rankscope.trace.columns import DeviceMemory, Steps
from rankscope.trace.files.load import load_traces

DATA = Path(__file__).parents[2] / "data"
MIB = 1 << 20
START = 1_700_000_000_000_000  # us


def frame(path: str, line: int, name: str) -> dict:
    return {"filename": path, "line": line, "name": name}


SITE = "/opt/venv/lib/python3.11/site-packages"
LINEAR = frame(f"{SITE}/torch/nn/modules/linear.py", 134, "forward")
ADAMW = frame(f"{SITE}/torch/optim/adamw.py", 200, "_init_group")
OURS = frame(f"{SITE}/rankscope/agent/steps/counter.py", 70, "step")
MODEL = frame("/home/user/job/model.py", 10, "forward")
TRAIN = frame("/home/user/job/train.py", 30, "main")


def event(action: str, time: int, addr: int, size: int, frames: list | None = None) -> dict:
    found = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": START + time}
    return found if frames is None else found | {"frames": frames}


def block(size: int, requested: int, state: str, frames: list | None = None) -> dict:
    return {"size": size, "requested_size": requested, "state": state, "frames": frames or []}


def segment(address: int, blocks: list[dict], device: int = 0) -> dict:
    total = sum(b["size"] for b in blocks)
    used = sum(b["size"] for b in blocks if b["state"] == "active_allocated")
    return {
        "device": device, "address": address, "total_size": total, "allocated_size": used, "active_size": used,
        "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "blocks": blocks,
    }  # fmt: skip


SMALL, LARGE, SPARE = 0x1000_0000, 0x2000_0000, 0x3000_0000  # segments
A, Z = SMALL, SMALL + 1024
B, C, D = LARGE, LARGE + 8 * MIB, LARGE + 12 * MIB


def snapshot() -> dict:
    """A window in which device 0 holds A throughout and gives back Z, both older than the history."""
    events = [
        event("segment_alloc", 10, LARGE, 20 * MIB, [LINEAR, MODEL]),
        event("alloc", 11, B, 8 * MIB, [LINEAR, MODEL, TRAIN]),
        event("alloc", 20, C, 4 * MIB, [ADAMW, OURS, TRAIN]),
        event("free_requested", 21, Z, 512),
        event("free_completed", 22, Z, 512),
        event("alloc", 30, D, 2 * MIB, []),  # the backward pass
        event("free_requested", 40, B, 8 * MIB),
        event("free_completed", 41, B, 8 * MIB),
        event("segment_alloc", 42, SPARE, 2 * MIB),
        event("alloc", 43, B, 1 * MIB, [LINEAR, MODEL, TRAIN]),  # the address is used again
        event("free_requested", 44, C, 4 * MIB),  # another stream still reads C
        event("segment_free", 51, SPARE, 2 * MIB),
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": START + 60},
    ]
    return {
        "segments": [
            segment(SMALL, [block(1024, 1000, "active_allocated"), block(2 * MIB - 1024, 0, "inactive")]),
            segment(
                LARGE,
                [
                    block(1 * MIB, 1 * MIB, "active_allocated", [LINEAR, MODEL, TRAIN]),
                    block(7 * MIB, 0, "inactive"),
                    block(4 * MIB, 4 * MIB, "active_pending_free", [ADAMW, OURS, TRAIN]),
                    block(2 * MIB, 2 * MIB, "active_allocated"),
                    block(6 * MIB, 0, "inactive"),
                ],
            ),
        ],
        "device_traces": [events, []],
        "rankscope": {"attempt": 1, "window": 2, "rank": 3, "complete": True},
    }


def test_a_window_s_numbers() -> None:
    # after D: A 1000, B 8 MiB, C 4 MiB, D 2 MiB; Z is gone. At the end: A, the new B, C (not yet usable again), D
    row = memory_row(snapshot(), "rank_00003.memory.pickle", {})
    assert (row.attempt, row.window, row.rank, row.file) == (1, 2, 3, "rank_00003.memory.pickle")
    assert row.peak_allocated_bytes == 14 * MIB + 1000
    assert row.end_allocated_bytes == 7 * MIB + 1000
    assert row.peak_reserved_bytes == 2 * MIB + 20 * MIB + 2 * MIB
    assert row.end_reserved_bytes == 22 * MIB
    assert row.fragmentation_bytes == 15 * MIB - 1000
    assert (row.segment_allocs, row.segment_frees) == (2, 1)
    assert (row.complete, row.requested_bytes) == (True, None)


def test_who_holds_the_peak() -> None:
    # the innermost line that is neither PyTorch's nor ours
    assert memory_row(snapshot(), "f", {}).top == [
        MemoryFrame(frame="job/model.py:10 forward", bytes=8 * MIB, count=1),
        MemoryFrame(frame="job/train.py:30 main", bytes=4 * MIB, count=1, what="optimizer states"),
        MemoryFrame(frame=NO_FRAME, bytes=2 * MIB, count=1),
        MemoryFrame(frame=BEFORE, bytes=1000, count=1),
    ]


def test_what_a_line_holds_is_told_by_what_it_called() -> None:
    """Innermost first: PyTorch's own frames name what the line of the script allocates."""

    def frame(filename: str, name: str) -> dict:
        return {"filename": filename, "name": name, "line": 7}

    line = frame("/home/me/job/train.py", "main")
    assert _holder([frame("/lib/torch/optim/adamw.py", "_init_group"), line]) == (
        "job/train.py:7 main",
        "optimizer states",
    )
    assert _holder([frame("/lib/torch/nn/functional.py", "cross_entropy"), line])[1] == "logits and loss"
    assert _holder([frame("/home/me/job/model.py", "my_loss"), line]) == ("job/model.py:7 my_loss", "")
    assert _holder([frame("/lib/torch/nn/functional.py", "linear"), line])[1] == ""
    assert _holder([], BEFORE) == (BEFORE, "")


def test_a_peak_before_the_first_event() -> None:
    # the window begins with 10 MiB that it gives back one by one; then 3 MiB, which stay
    events = []
    for i in range(5):
        events += [event(action, i, LARGE + i * 2 * MIB, 2 * MIB) for action in ("free_requested", "free_completed")]
    events += [event("alloc", 9, LARGE, 3 * MIB, [MODEL])]
    row = memory_row(
        {
            "segments": [segment(LARGE, [block(3 * MIB, 3 * MIB, "active_allocated"), block(7 * MIB, 0, "inactive")])],
            "device_traces": [events],
            "rankscope": {"rank": 0, "window": 0, "complete": False},
        },
        "f",
        {},
    )
    assert (row.peak_allocated_bytes, row.end_allocated_bytes, row.complete) == (10 * MIB, 3 * MIB, False)
    assert row.top == [MemoryFrame(frame=BEFORE, bytes=10 * MIB, count=5)]


def test_an_out_of_memory_error_without_a_history() -> None:
    # only the state is known; frames stand on blocks where the script recorded states
    row = memory_row(
        {
            "segments": [
                segment(LARGE, [block(8 * MIB, 8 * MIB, "active_allocated", [MODEL]), block(2 * MIB, 0, "inactive")]),
                segment(SMALL, [block(2 * MIB, 2 * MIB, "active_allocated")]),
            ],
            "device_traces": [[]],
            "rankscope": {"rank": 1, "attempt": 0, "requested_bytes": 4 * MIB, "free_bytes": MIB, "complete": True},
        },
        "f",
        {},
    )
    assert (row.window, row.requested_bytes) == (None, 4 * MIB)
    assert (row.peak_allocated_bytes, row.peak_reserved_bytes, row.fragmentation_bytes) == (
        10 * MIB,
        12 * MIB,
        2 * MIB,
    )
    assert row.top == [
        MemoryFrame(frame="job/model.py:10 forward", bytes=8 * MIB, count=1),
        MemoryFrame(frame=BEFORE, bytes=2 * MIB, count=1),
    ]


def test_the_device_with_the_highest_peak_counts() -> None:
    found = snapshot()
    found["device_traces"] = [[], found["device_traces"][0]]
    for each in found["segments"]:
        each["device"] = 1
    found["segments"].append(segment(LARGE, [block(MIB, MIB, "active_allocated")], device=0))
    assert memory_row(found, "f", {}).peak_allocated_bytes == 14 * MIB + 1000


def test_at_most_ten_lines_are_kept() -> None:
    lines = [event("alloc", i, LARGE + i * MIB, (i + 1) * 1024, [frame("/j/m.py", i, "f")]) for i in range(12)]
    blocks = [block(MIB, (i + 1) * 1024, "active_allocated") for i in range(12)]
    found = {
        "segments": [segment(LARGE, blocks)],
        "device_traces": [lines],
        "rankscope": {"rank": 0, "window": 0},
    }
    assert [f.frame for f in memory_row(found, "f", {}).top] == [f"j/m.py:{i} f" for i in range(11, 1, -1)]


def test_expandable_segments_are_mapped_and_unmapped() -> None:
    events = [
        event("segment_map", 1, LARGE, 20 * MIB),
        event("segment_map", 2, LARGE + 20 * MIB, 4 * MIB),
        event("segment_unmap", 3, LARGE + 20 * MIB, 4 * MIB),
    ]
    found = {
        "segments": [segment(LARGE, [block(20 * MIB, 0, "inactive")])],
        "device_traces": [events],
        "rankscope": {"rank": 0, "window": 0},
    }
    row = memory_row(found, "f", {})
    assert (row.segment_allocs, row.segment_frees) == (2, 1)
    assert (row.peak_reserved_bytes, row.end_reserved_bytes) == (24 * MIB, 20 * MIB)


@pytest.mark.parametrize("seed", range(5))
def test_any_history_adds_up(seed) -> None:
    """An allocator that hands out fresh addresses; the history begins somewhere in its life."""
    random = np.random.default_rng(seed)
    alive: dict[int, tuple[int, str]] = {}
    states, events = [], []
    for time in range(400):
        if alive and random.random() < 0.5:
            addr = int(random.choice(list(alive)))
            events.append(event("free_completed", time, addr, alive.pop(addr)[0]))
        else:
            size, line = int(random.integers(1, 4096)), int(random.integers(1, 4))
            alive[time * 4096] = (size, f"j/m.py:{line} f")
            events.append(event("alloc", time, time * 4096, size, [frame("/j/m.py", line, "f")]))
        states.append(dict(alive))
    begin = int(random.integers(1, 300))
    blocks = [
        block(4096, alive[addr][0], "active_allocated") if addr in alive else block(4096, 0, "inactive")
        for addr in range(0, 400 * 4096, 4096)
    ]
    found = {
        "segments": [segment(0, blocks)],
        "device_traces": [events[begin:]],
        "rankscope": {"rank": 0, "window": 0},
    }
    row = memory_row(found, "f", {})
    seen = states[begin - 1 :]  # before the first recorded event, and after each
    sums = [sum(size for size, _ in state.values()) for state in seen]
    assert (row.peak_allocated_bytes, row.end_allocated_bytes) == (max(sums), sums[-1])
    expected: dict[str, list[int]] = {}
    for addr, (size, line) in seen[int(np.argmax(sums))].items():
        entry = expected.setdefault(line if addr >= begin * 4096 else BEFORE, [0, 0])
        entry[0] += size
        entry[1] += 1
    assert {f.frame: [f.bytes, f.count] for f in row.top} == expected


def _trace(rank: int) -> SimpleNamespace:
    """Steps of [0, 30), [30, 42) and [42, 60) us after the start."""
    start = (START + np.array([0, 30, 42])) * 1000
    steps = Steps(np.arange(3), start, np.array([30, 12, 18]) * 1000)
    return SimpleNamespace(attempt=1, window=2, rank=rank, steps=steps, memory=[], meta=SimpleNamespace(raw={}))


def test_the_files_of_a_run(tmp_path) -> None:
    (tmp_path / "rank_00003.memory.pickle").write_bytes(pickle.dumps(snapshot(), 4))
    other = snapshot() | {"rankscope": {"attempt": 1, "window": 2, "rank": 0, "complete": True}}
    (tmp_path / "rank_00000.memory.pickle").write_bytes(pickle.dumps(other, 4))
    (tmp_path / "rank_00001.memory.pickle").write_bytes(b"\x80\x04cut short")
    (tmp_path / "model.pickle").write_bytes(pickle.dumps({"weights": [1.0]}))
    rows, faults = memory_rows([_trace(3)], sorted(tmp_path.iterdir()))
    assert [r.rank for r in rows] == [0, 3]
    assert (rows[0].allocs_per_step, rows[0].frees_per_step) == ([], [])  # no trace, no steps
    assert (rows[1].allocs_per_step, rows[1].frees_per_step) == ([1, 0, 1], [0, 0, 1])
    # Z is held until 22 us, C from 20 us, D from 30 us, B until 41 us, its successor from 43 us
    assert rows[1].peak_per_step == [12 * MIB + 1512, 14 * MIB + 1000, 7 * MIB + 1000]
    assert rows[0].peak_per_step == []
    assert [f.partition(":")[0] for f in faults] == ["model.pickle", "rank_00001.memory.pickle"]


def test_without_a_snapshot_the_trace_is_used(tmp_path) -> None:
    (tmp_path / "rank_00003.memory.pickle").write_bytes(pickle.dumps(snapshot(), 4))
    (tmp_path / "rank_00005.memory.pickle").write_bytes(b"cut")
    oom = snapshot() | {"rankscope": {"attempt": 1, "window": None, "rank": 4, "complete": True}}
    (tmp_path / "rank_00004.memory_oom.pickle").write_bytes(pickle.dumps(oom, 4))
    traces = [_trace(rank) for rank in range(3, 7)]
    sizes = [{"id": 0, "totalGlobalMem": 20 * MIB}, {"id": 1, "totalGlobalMem": 10 * MIB}]
    traces[2].meta.raw["deviceProperties"] = sizes
    for trace in traces[:3]:
        trace.memory = [
            DeviceMemory(0, 5 * MIB, 6 * MIB, MIB, 6 * MIB, [MIB, MIB, 5 * MIB]),
            DeviceMemory(1, 7 * MIB, 9 * MIB, 2 * MIB, 8 * MIB, [3 * MIB, 5 * MIB, 7 * MIB]),
        ]
    rows, faults = memory_rows(traces, sorted(tmp_path.iterdir()))
    assert [(r.rank, r.window, r.file) for r in rows] == [
        (4, None, "rank_00004.memory_oom.pickle"),
        (3, 2, "rank_00003.memory.pickle"),  # the snapshot wins
        (4, 2, None),
        (5, 2, None),  # its snapshot is unreadable
    ]
    assert rows[1].peak_allocated_bytes == 14 * MIB + 1000
    assert rows[3] == MemoryRow(
        attempt=1, window=2, rank=5, file=None, peak_allocated_bytes=7 * MIB, peak_reserved_bytes=9 * MIB,
        end_allocated_bytes=2 * MIB, end_reserved_bytes=8 * MIB, segment_allocs=None, segment_frees=None,
        peak_per_step=[3 * MIB, 5 * MIB, 7 * MIB], device_bytes=10 * MIB,
    )  # fmt: skip
    assert [f.partition(":")[0] for f in faults] == ["rank_00005.memory.pickle"]


@pytest.mark.parametrize(
    ("peaks", "growth"), [([], None), ([MIB], None), ([3, 7], 4.0), ([10, 90, 4, 4], -2.0), ([5, 5, 5], 0.0)]
)
def test_growth_is_from_the_first_step_s_peak_to_the_last_s(peaks, growth) -> None:
    row = memory_row(snapshot(), "f", {})
    row.peak_per_step = peaks
    assert row.growth_bytes_per_step == growth


def test_snapshots_beside_traces_are_in_the_report(tmp_path) -> None:
    shutil.copytree(DATA / "cases" / "23_straggler_late_rank" / "traces", tmp_path / "traces")
    (tmp_path / "traces" / "rank_00003.memory.pickle").write_bytes(pickle.dumps(snapshot(), 4))
    (tmp_path / "rank_00001.memory_oom.pickle").write_bytes(b"cut")
    report = analyze(load_traces([tmp_path, tmp_path / "traces"], workers=1, cache=False), hta=False)
    assert [(r.rank, r.peak_allocated_bytes) for r in report.memory] == [(3, 14 * MIB + 1000)]
    assert [(e.where, e.message.partition(":")[0]) for e in report.errors] == [
        ("memory", "rank_00001.memory_oom.pickle")
    ]


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_is_not_run(tmp_path) -> None:
    path, mark = tmp_path / "x.pickle", tmp_path / "mark"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [], "rankscope": _Evil(mark)}))
    rows, faults = memory_rows([], [path])
    assert rows == []
    assert faults == ["x.pickle: refused: it would run posix.mkdir, and a memory snapshot needs no code"]
    assert not mark.exists()
    pickle.loads(path.read_bytes())  # what an ordinary reader does
    assert mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        pickle.dumps([1, 2]),
        pickle.dumps({"segments": []}),
        pickle.dumps(snapshot())[:-50],
        b"\x80\x04}(\x8c\x01aK\x01ub.",  # BUILD on a dict
    ],
)
def test_what_is_no_snapshot_is_refused(tmp_path, content) -> None:
    with pytest.raises(TraceError, match="not a memory snapshot of PyTorch"):
        load_snapshot(io.BytesIO(content))


ENDLESS = b"\x80\x04})" + b"2\x86" * 60 + b"K\x01s."  # a key whose hash takes 2**60 steps


def test_a_process_that_reads_for_longer_than_it_may_ends(tmp_path) -> None:
    path = tmp_path / "b.pickle"
    path.write_bytes(ENDLESS)
    text = (
        f"from rankscope.analysis.memory import process as p; p._SPARE_S = 0.1; p.load_limited(p.Path({str(path)!r}))"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == -signal.SIGPROF


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04]r\xff\xff\xff\x7f.",  # a memo of two thousand million places
        b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little"),  # a text of a terabyte
        pytest.param(ENDLESS, marks=pytest.mark.long),
    ],
)
def test_what_takes_more_than_its_size_allows_is_left(tmp_path, content) -> None:
    good = pickle.dumps(snapshot() | {"rankscope": {"rank": 1}})
    for name, data in (("a.pickle", good), ("b.pickle", content), ("c.pickle", good)):
        (tmp_path / name).write_bytes(data)
    rows, faults = memory_rows([], sorted(tmp_path.iterdir()))
    assert [row.file for row in rows] == ["a.pickle", "c.pickle"]
    assert len(faults) == 1
    assert "b.pickle: not read: it takes more memory or time" in faults[0]


def test_what_lies_in_the_current_folder_is_not_run(tmp_path, monkeypatch) -> None:
    mark = tmp_path / "mark"
    for name in ("json", "numpy", "gzip", "rankscope"):
        (tmp_path / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')")
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(snapshot() | {"rankscope": {"rank": 1}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows, faults = memory_rows([], [Path("a.pickle")])
    assert (len(rows), faults, mark.exists()) == (1, [], False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rankscope": None}, "which rank"),
        ({"rankscope": {"rank": "3"}}, "which rank"),
        ({"segments": [{"device": 0}]}, "not the format"),
        ({"device_traces": [[{"action": "alloc"}]]}, "not the format"),
        ({"device_traces": []}, "not the format"),
        ({"device_traces": 7}, "not the format"),
    ],
)
def test_another_format_is_reported(change, words) -> None:
    with pytest.raises(TraceError, match=words):
        memory_row(snapshot() | change, "f", {})
