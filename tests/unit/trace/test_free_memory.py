"""Reading stops with an error before the machine's memory is exhausted; /proc is replaced by files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.errors import TraceError
from rankscope.trace import free_memory, read
from rankscope.trace.files.load import load_traces

MEMINFO = "MemTotal:       1000000 kB\nMemFree:          10000 kB\nMemAvailable:    {} kB\n"


def tell(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kib: int, most: str = "max", used: int = 0, cached: int = 0
) -> None:
    (folder / "meminfo").write_text(MEMINFO.format(kib))
    (folder / "own").write_text("0::/job\n")
    (folder / "job").mkdir(exist_ok=True)
    (folder / "job" / "memory.max").write_text(f"{most}\n")
    (folder / "job" / "memory.current").write_text(f"{used}\n")
    (folder / "job" / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")
    monkeypatch.setattr(free_memory, "_MEMINFO", folder / "meminfo")
    monkeypatch.setattr(free_memory, "_OWN_CGROUP", folder / "own")
    monkeypatch.setattr(free_memory, "_CGROUP", folder)


def test_the_machine_and_the_cgroup(tmp_path, monkeypatch):
    tell(tmp_path, monkeypatch, 50_001)
    assert free_memory.available() == [("this machine", 50_001 << 10, 1_000_000 << 10)]
    free_memory.require_memory("t")
    tell(tmp_path, monkeypatch, 49_999)
    with pytest.raises(
        TraceError, match="t: too large for the memory there is: 48 of 976 MiB of this machine are left"
    ):
        free_memory.require_memory("t")
    tell(tmp_path, monkeypatch, 500_000, "1000", 980, 40)  # 60 are left: files give back 40
    assert free_memory.available()[1] == ("its cgroup", 60, 1000)
    free_memory.require_memory("t")
    tell(tmp_path, monkeypatch, 500_000, "1000", 980, 20)
    with pytest.raises(TraceError, match="of its cgroup are left"):
        free_memory.require_memory("t")


def test_what_is_not_told_is_no_limit(tmp_path, monkeypatch):
    for name in ("_MEMINFO", "_OWN_CGROUP", "_CGROUP"):
        monkeypatch.setattr(free_memory, name, tmp_path / "absent")
    assert free_memory.available() == []
    free_memory.require_memory("t")


def test_a_trace_too_large_is_named_and_the_others_are_read(tmp_path, monkeypatch):
    def events(count: int) -> str:
        one = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 1.0}
        return json.dumps({"schemaVersion": 1, "traceEvents": [one] * count})

    (tmp_path / "rank_0.json").write_text(events(10))
    (tmp_path / "rank_1.json").write_text(events(10_000))
    (tmp_path / "told").mkdir()
    tell(tmp_path / "told", monkeypatch, 1)
    monkeypatch.setattr(read, "_LOOK_EVERY_BYTES", 100_000)
    found = load_traces([tmp_path / "rank_0.json", tmp_path / "rank_1.json"], cache=False)
    assert [t.rank for t in found.traces] == [0]
    (reason,) = (s.reason for s in found.sources if s.status == "unusable")
    assert reason is not None
    assert "rank_1.json: too large for the memory there is" in reason
