"""Columns are unchanged by Parquet; a cache that does not fit its trace is not used."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rankscope.trace.columns import RankTrace
from rankscope.trace.files import load
from rankscope.trace.files.cache import cache_path, load_cached, store_cached
from rankscope.trace.files.load import load_traces
from rankscope.trace.kineto.build import FORMAT, read_trace

pytestmark = pytest.mark.data
CASES = sorted((Path(__file__).parents[2] / "data" / "cases").glob("*/traces/*rank*.json"))
CASES = [path for path in CASES if not path.name.endswith("_et.json")]


def plain(trace: RankTrace) -> dict[str, Any]:
    whole = dataclasses.asdict(trace)
    texts = whole.pop("strings")
    for key in ("name", "shape"):
        whole["events"][key] = [texts[c] if c >= 0 else None for c in whole["events"][key].tolist()]
    return {
        k: {n: a.tolist() if isinstance(a, np.ndarray) else a for n, a in v.items()} if isinstance(v, dict) else v
        for k, v in whole.items()
    }


@pytest.fixture
def copied(tmp_path: Path, data: Path) -> Path:
    """A trace of a run directory."""
    target = tmp_path / "run" / "attempt_0" / "window_000" / "rank_3.pt.trace.json"
    target.parent.mkdir(parents=True)
    (tmp_path / "run" / "run.json").touch()
    shutil.copy(data / "cases" / "16_two_process_groups" / "traces" / "rank3.json", target)
    return target


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parts[-3][:2]}-{p.name}")
def test_everything_survives(path: Path, tmp_path: Path) -> None:
    trace = read_trace(path)
    own = Path(shutil.copy(path, tmp_path))
    trace.source = str(own)
    assert store_cached(own, trace)
    back = load_cached(own)
    assert back is not None
    assert plain(back) == plain(trace)
    for column in dataclasses.fields(trace.events):
        assert getattr(back.events, column.name).dtype == getattr(trace.events, column.name).dtype
        assert getattr(back.events, column.name).flags.writeable
    for column in dataclasses.fields(trace.collectives):
        assert type(getattr(back.collectives, column.name)) is type(getattr(trace.collectives, column.name))


def test_the_second_time_the_trace_is_not_decoded(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_traces([copied.parent])
    assert cache_path(copied).name == "rank_3.parquet"
    monkeypatch.delitem(load.BY_NAME, FORMAT.name)
    second = load_traces([copied.parent])
    assert [plain(t) for t in second.traces] == [plain(t) for t in first.traces]
    assert second.sources == first.sources


@pytest.mark.parametrize("change", ["touch", "grow", "version", "corrupt", "cut"])
def test_a_cache_that_does_not_fit_is_left(copied: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    load_traces([copied])
    assert load_cached(copied) is not None
    parquet = cache_path(copied)
    if change == "touch":
        os.utime(copied, ns=(1, 1))
    elif change == "grow":
        copied.write_bytes(copied.read_bytes() + b"\n")
    elif change == "version":
        monkeypatch.setattr("rankscope.trace.files.cache.PARQUET_VERSION", 10**6)
    elif change == "corrupt":
        parquet.write_bytes(b"PAR1" + b"\0" * 500 + b"PAR1")
    else:
        parquet.write_bytes(parquet.read_bytes()[:-100])
    assert load_cached(copied) is None
    assert len(load_traces([copied]).traces) == 1


@pytest.mark.parametrize("place", range(0, 9000, 450))
def test_flipped_bytes_in_the_cache_change_no_number(copied: Path, place: int) -> None:
    truth = [plain(t) for t in load_traces([copied]).traces]
    parquet = cache_path(copied)
    raw = bytearray(parquet.read_bytes())
    raw[place % len(raw)] ^= 0xFF
    parquet.write_bytes(raw)
    assert [plain(t) for t in load_traces([copied]).traces] == truth


@pytest.mark.parametrize(
    ("lie", "value"), [("launch", 1 << 30), ("step", 1 << 30), ("category", 100), ("start", 0), ("duration", -5)]
)
def test_columns_that_do_not_fit_together_are_left(copied: Path, lie: str, value: int) -> None:
    (trace,) = load_traces([copied], cache=False).traces
    column = getattr(trace.events, lie)
    column[len(column) // 2] = value
    assert store_cached(copied, trace)
    assert load_cached(copied) is None


def test_a_fifo_in_the_place_of_the_cache_is_not_waited_for(copied: Path) -> None:
    os.mkfifo(cache_path(copied))
    assert len(load_traces([copied]).traces) == 1
    assert cache_path(copied).is_fifo()


def test_a_foreign_parquet_is_not_overwritten(copied: Path) -> None:
    pd.DataFrame({"mine": [1]}).to_parquet(cache_path(copied))
    before = cache_path(copied).read_bytes()
    assert len(load_traces([copied]).traces) == 1
    assert cache_path(copied).read_bytes() == before


def test_a_folder_that_cannot_be_written(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rankscope.trace.files.cache.tempfile.mkstemp", lambda **k: (_ for _ in ()).throw(PermissionError())
    )
    assert len(load_traces([copied]).traces) == 1
    assert [p.name for p in copied.parent.iterdir()] == [copied.name]


def test_a_read_only_folder_is_cached_in_the_user_s_own(
    copied: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    # rights are no obstacle to root, so that the answer is forged instead
    monkeypatch.setattr("rankscope.trace.files.cache.os.access", lambda path, mode: Path(path) != copied.parent)
    first = load_traces([copied])
    assert [p.name for p in copied.parent.iterdir()] == [copied.name]
    (kept,) = (home / "rankscope").iterdir()
    assert kept.suffix == ".parquet"
    monkeypatch.delitem(load.BY_NAME, FORMAT.name)
    assert [plain(t) for t in load_traces([copied]).traces] == [plain(t) for t in first.traces]


def test_a_read_only_folder_without_a_home(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    monkeypatch.setattr("rankscope.trace.files.cache.os.access", lambda path, mode: False)
    assert len(load_traces([copied]).traces) == 1
    assert [p.name for p in copied.parent.iterdir()] == [copied.name]


@pytest.mark.parametrize("named", [False, True])
def test_nothing_is_left_beside_the_traces_of_others(
    copied: Path, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run" / "run.json").unlink()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "columns"
    first = load_traces([copied], cache=folder if named else True)
    assert [p.name for p in copied.parent.iterdir()] == [copied.name]
    (kept,) = (folder if named else tmp_path / "home" / "rankscope").iterdir()
    assert kept.name.startswith("rank_3-")
    monkeypatch.delitem(load.BY_NAME, FORMAT.name)
    again = load_traces([copied], cache=folder if named else True)
    assert [plain(t) for t in again.traces] == [plain(t) for t in first.traces]


def test_the_cache_folder_keeps_what_was_used_last(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run" / "run.json").unlink()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    others = [Path(shutil.copy(copied, copied.with_name(f"rank_{n}.json"))) for n in (5, 6)]
    for age, file in ((300, copied), (200, others[0])):
        load_traces([file])
        os.utime(cache_path(file), (1e9 - age, 1e9 - age))
    assert load_cached(copied) is not None  # and is the younger one now
    size = cache_path(copied).stat().st_size
    monkeypatch.setattr("rankscope.trace.files.cache._MOST_CACHED", 2.5 * size)
    load_traces([others[1]])
    assert [cache_path(file).exists() for file in (copied, *others)] == [True, False, True]


def test_no_cache_on_request(copied: Path) -> None:
    load_traces([copied], cache=False)
    assert [p.name for p in copied.parent.iterdir()] == [copied.name]


def test_readable_by_others(copied: Path) -> None:
    (trace,) = load_traces([copied]).traces
    frame = pd.read_parquet(cache_path(copied))
    assert len(frame) == len(trace.events)
    calls = frame[frame.collective.notna()]
    assert calls.collective.tolist() == trace.collectives.kind
    assert calls.seq.astype(int).tolist() == trace.collectives.seq.tolist()
    assert frame.name.tolist() == [trace.strings[c] for c in trace.events.name]


def test_pandas_is_not_needed(copied: Path) -> None:
    """Importing pandas takes longer than reading a large trace's columns."""
    script = (
        "import sys, pathlib; from rankscope.trace.files.load import load_traces\n"
        "for _ in range(2): assert len(load_traces([pathlib.Path(sys.argv[1])]).traces) == 1\n"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(copied)]).returncode == 0
    assert cache_path(copied).exists()
