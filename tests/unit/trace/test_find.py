"""Which files are candidates for traces, and their windows."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.errors import ConfigError
from rankscope.trace.files import find
from rankscope.trace.files.find import find_traces
from rankscope.trace.files.load import load_traces
from rankscope.trace.files.not_used import MOST_LISTED, listed, why_unused

Write = Callable[..., Path]
Make = Callable[..., dict[str, Any]]


def rank_events(make_event: Make, first: int, at: int) -> list[dict[str, Any]]:
    steps = [
        make_event(at + 10 * i, 10, cat="user_annotation", name=f"ProfilerStep#{first + i}", pid=1, tid=1)
        for i in range(2)
    ]
    return [*steps, make_event(at + 1, 5)]


def test_a_run_directory(write_trace: Write, make_event: Make, tmp_path: Path) -> None:
    for attempt, window, rank in [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]:
        name = f"attempt_{attempt}/window_{window:03d}/rank_{rank:05d}.trace.json.gz"
        write_trace(rank_events(make_event, 0, 0), name=name)
        (tmp_path / name.replace(".trace.json.gz", ".json")).write_text('{"rank": 0}')
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "host.claim.json").write_text("{}")
    (tmp_path / "nodes" / "host.result.json").write_text("{}")
    (tmp_path / "nodes" / "launch.json").write_text("{}")
    (tmp_path / "report").mkdir()
    write_trace([make_event(0, 1)], name="report/cluster.trace.json.gz")
    result = load_traces([tmp_path], cache=False)
    assert [(t.attempt, t.window, t.rank) for t in result.traces] == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert {s.status for s in result.sources} == {"used"}


def test_the_same_rank_twice_is_reported(write_trace: Write, make_event: Make, tmp_path: Path) -> None:
    path = write_trace(rank_events(make_event, 0, 0), name="a/rank_0.json")
    (tmp_path / "b").mkdir()
    shutil.copy(path, tmp_path / "b" / "rank_0.json")
    result = load_traces([tmp_path], cache=False)
    assert [t.source for t in result.traces] == [str(path)]
    (second,) = (s for s in result.sources if s.status == "unusable")
    assert second.path == str(tmp_path / "b" / "rank_0.json")
    assert str(path) in (second.reason or "")


def test_windows_are_identified_by_step_numbers(write_trace: Write, make_event: Make, tmp_path: Path) -> None:
    # rank 1 has no first window: its only file must not become window 0
    write_trace(rank_events(make_event, 10, 1000), name="rank_0_a.json")
    write_trace(rank_events(make_event, 50, 5000), name="rank_0_b.json")
    write_trace(rank_events(make_event, 50, 77), name="rank_1.json")
    result = load_traces([tmp_path], cache=False)
    assert [(t.window, t.rank) for t in result.traces] == [(0, 0), (1, 0), (1, 1)]


def test_windows_without_steps_are_identified_by_time(write_trace: Write, make_event: Make, tmp_path: Path) -> None:
    for rank in range(2):
        for window in range(2):
            write_trace([make_event(1000 * window + rank, 100)], name=f"w{window}/rank_{rank}.json")
    result = load_traces([tmp_path], cache=False)
    assert [(t.window, t.rank) for t in result.traces] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_what_is_set_aside_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("")
    (tmp_path / "b.json").write_text('{"x": 1}')
    (tmp_path / "c.json").symlink_to("/nowhere/c.json")
    (tmp_path / "rank_5.trace.json.gz").write_bytes(b"\x1f\x8bgarbage")
    (tmp_path / "notes.txt").write_text("not offered")
    (tmp_path / "loop.json").symlink_to("loop.json")
    found = find_traces([tmp_path, tmp_path / "missing.json", tmp_path / "a.json"])
    assert found.candidates == []
    assert {Path(s.path).name: s.status for s in found.aside} == {
        "a.json": "unusable",
        "b.json": "ignored",
        "c.json": "ignored",
        "rank_5.trace.json.gz": "unusable",
        "loop.json": "unusable",
        "missing.json": "unusable",
    }
    assert all(s.reason for s in found.aside)
    assert [s.rank for s in found.aside if s.rank is not None] == [5]


def test_packed_files_are_named_with_what_to_do(tmp_path: Path) -> None:
    trace = '{"traceEvents": []}'
    tar = bytearray(512)
    tar[257:262] = b"ustar"
    packed = {
        "rank_1.json.zst": (b"\x28\xb5\x2f\xfd" + bytes(60), "unusable", "zstd -d"),
        "rank_2.json.xz": (lzma.compress(trace.encode()), "unusable", "xz -d"),
        "rank_3.json": (trace.encode("utf-16"), "unusable", "iconv"),
        "rank_4.json.bz2": (bz2.compress(trace.encode()), "unusable", "bzip2 -d"),
        "traces.zip": (b"PK\x03\x04" + bytes(60), "ignored", "a zip archive"),
        "traces.tar.gz": (gzip.compress(bytes(tar)), "ignored", "a tar archive"),
    }
    for name, (content, _, _) in packed.items():
        (tmp_path / name).write_bytes(content)
    found = find_traces([tmp_path])
    assert found.candidates == []
    for source in found.aside:
        _, status, says = packed.pop(Path(source.path).name)
        assert (source.status, says in (source.reason or "")) == (status, True)
    assert not packed
    assert sorted(s.rank for s in found.aside if s.rank is not None) == [1, 2, 3, 4]


def test_what_lies_beside_the_traces_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    window, pulse = tmp_path / "run" / "attempt_1" / "window_002", tmp_path / "run" / "attempt_1" / "pulse"
    for folder in (window, pulse):
        folder.mkdir(parents=True)
    for path in (
        window / "rank_00003.memory.pickle",
        window.parent / "rank_00001.memory_oom.pickle",
        window / "model.pickle",
        pulse / "rank_00003.bin.gz",
        window / "rank_00003.bin.gz",
    ):
        path.write_bytes(b"")
    found = find_traces([tmp_path, tmp_path / "run"])  # a folder within the other
    assert found.snapshots == [window.parent / "rank_00001.memory_oom.pickle", window / "rank_00003.memory.pickle"]
    assert found.step_logs == [pulse / "rank_00003.bin.gz"]
    assert (found.candidates, found.aside) == ([], [])
    monkeypatch.chdir(window)
    assert find_traces([Path()]).snapshots == [Path("rank_00003.memory.pickle")]


WATCHED = """
import json, pathlib, sys
from rankscope.trace.files.load import load_traces
folder, listed = sys.argv[1], []
sys.addaudithook(lambda event, found: listed.append(str(found[0])) if event in ("os.scandir", "os.listdir") else None)
load_traces([pathlib.Path(folder)])
print(json.dumps(sorted(path for path in listed if path.startswith(folder))))
"""


def test_every_folder_is_listed_once(tmp_path: Path) -> None:
    (tmp_path / "attempt_0" / "pulse").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == [str(tmp_path), str(tmp_path / "attempt_0"), str(tmp_path / "attempt_0/pulse")]


def test_a_trace_without_usable_events_is_listed(write_trace: Write, make_event: Make, tmp_path: Path) -> None:
    write_trace([], name="rank_0.json")
    good = write_trace([make_event(0, 1)], name="rank_1.json")
    result = load_traces([tmp_path], cache=False)
    assert [t.source for t in result.traces] == [str(good)]
    (bad,) = (s for s in result.sources if s.status == "unusable")
    assert bad.rank == 0
    assert "no usable event" in (bad.reason or "")


def test_thousands_of_files_that_are_no_traces(
    write_trace: Write, make_event: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are counted instead of listed, and a folder of too many is refused; what is no JSON by its name is not
    opened. Files that were to be traces are always listed."""
    write_trace(rank_events(make_event, 0, 0), name="rank_0.json")
    (tmp_path / "rank_1.json").write_text("")
    for number in range(120):
        (tmp_path / f"set_{number:03d}.json").write_text('{"a": 1}')
        (tmp_path / f"image_{number}.png").write_text("")
    load = load_traces([tmp_path])
    kept, words = listed(load.sources)
    assert [source.status for source in kept].count("ignored") == MOST_LISTED
    assert {"used", "unusable"} <= {source.status for source in kept}
    example = f"{tmp_path}/set_100.json (JSON, but not a profiler trace)"
    assert words == f"20 further files are no traces and are not listed, such as {example}"
    assert listed(kept) == (kept, None)
    assert why_unused(load.sources).startswith(f"120 files such as {tmp_path}/set_000.json: JSON, but not")
    monkeypatch.setattr(find, "MOST_FOREIGN", 100)
    with pytest.raises(ConfigError, match=r"101 files were opened that are no traces, the last one set_.*; name the f"):
        find_traces([tmp_path])
    monkeypatch.setattr(find, "MOST_FOREIGN", 200)
    monkeypatch.setattr(find, "MOST_FOREIGN_BYTES", 60 * 8)
    with pytest.raises(ConfigError, match="61 files were opened"):
        find_traces([tmp_path])
    monkeypatch.setattr(find, "MOST_FILES", 150)
    with pytest.raises(ConfigError, match="holds more than 150 files"):
        find_traces([tmp_path])


def test_the_signs_of_a_trace_after_a_long_head(tmp_path: Path) -> None:
    """Some 900 kB of other keys come first; after more than 1 MiB of them it is taken for other JSON."""
    for name, size, count in (("near.json", 900_000, 1), ("far.json", 1_200_000, 1)):
        (tmp_path / name).write_text(json.dumps({"meta": "x" * size, "traceEvents": []}))
        assert len(find_traces([tmp_path]).candidates) == count
