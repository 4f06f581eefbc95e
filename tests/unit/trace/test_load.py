"""Many files at once: in processes, with progress, and with a bad file among them."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rankscope.trace.files import load
from rankscope.trace.files.load import load_traces
from rankscope.trace.kineto.build import FORMAT
from support.launching import LIMIT_S

pytestmark = pytest.mark.data
Write = Callable[..., Path]
Make = Callable[..., dict[str, Any]]


def test_processes_and_this_process_agree(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "cases" / "23_straggler_late_rank" / "traces", tmp_path / "t")
    (tmp_path / "t" / "rank9.json").write_text('{"traceEvents": [{"ph": "X"')
    one = load_traces([tmp_path], workers=1, cache=False)
    two = load_traces([tmp_path], workers=2, cache=False)
    assert two.sources == one.sources
    assert [t.events.start.tolist() for t in two.traces] == [t.events.start.tolist() for t in one.traces]
    assert [s.status for s in one.sources] == ["unusable", "used", "used", "used", "used"]


def test_workers_do_not_run_the_script_again(data: Path) -> None:
    """A script without a main guard, from a pipe: a worker could not even find it."""
    folder = str(data / "cases" / "23_straggler_late_rank" / "traces")
    script = (
        "from rankscope.trace.files.load import load_traces\nprint('run')\n"
        f"print(len(load_traces([{folder!r}], workers=2, cache=False).traces))\n"
    )
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.stdout, done.stderr, done.returncode) == ("run\n4\n", "", 0)


def test_progress_counts_bytes(data: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    folder = data / "cases" / "23_straggler_late_rank" / "traces"
    load_traces(
        [folder],
        cache=False,
        progress=lambda done, total, path: seen.append((done, total, Path(path).name)),
    )
    size = {f"rank{r}.json": (folder / f"rank{r}.json").stat().st_size for r in range(4)}
    assert {s[1] for s in seen} == {sum(size.values())}
    assert seen[0][2] == ""
    assert sorted(s[2] for s in seen[1:]) == sorted(size)
    assert [now[0] - before[0] for before, now in itertools.pairwise(seen)] == [size[s[2]] for s in seen[1:]]


def test_small_inputs_start_no_process(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "worker_pool", lambda *a, **k: pytest.fail("a process was started"))
    assert len(load_traces([data / "cases" / "23_straggler_late_rank" / "traces"], cache=False).traces) == 4


def test_lost_processes_do_not_lose_files(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise load.BrokenProcessPool("killed")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", broken)
    result = load_traces([data / "cases" / "23_straggler_late_rank" / "traces"], workers=2, cache=False)
    assert len(result.traces) == 4


def test_nothing_given(tmp_path: Path) -> None:
    result = load_traces([tmp_path], cache=False)
    assert (result.traces, result.sources, result.unassigned) == ([], [], [])


def test_an_error_nobody_foresaw_costs_one_file(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path) -> Any:
        if path.name == "rank2.json":
            raise RuntimeError("no idea")
        return FORMAT.read(path)

    monkeypatch.setitem(load.BY_NAME, FORMAT.name, dataclasses.replace(FORMAT, read=fails))
    result = load_traces([data / "cases" / "23_straggler_late_rank" / "traces"], cache=False)
    assert [t.rank for t in result.traces] == [0, 1, 3]
    (bad,) = (s for s in result.sources if s.status == "unusable")
    assert (bad.rank, "RuntimeError: no idea" in (bad.reason or "")) == (2, True)


def test_what_is_no_regular_file_is_not_waited_for(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "cases" / "23_straggler_late_rank" / "traces", tmp_path / "t")
    os.mkfifo(tmp_path / "t" / "rank9.json")
    (tmp_path / "t" / "rank_8.json.gz").mkdir()
    result = load_traces([tmp_path], cache=False)
    assert [t.rank for t in result.traces] == [0, 1, 2, 3]
    assert sorted((s.rank, s.reason) for s in result.sources if s.status == "ignored") == [
        (8, "a folder, not a trace"),
        (9, "not a regular file"),
    ]
