"""Baselines in folders and at URLs, and their history."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from rankscope.compare.baselines import KEPT, Store
from rankscope.compare.history import history
from rankscope.compare.show import history as pages
from rankscope.compare.sides.side import summary_of
from rankscope.errors import ConfigError, ForeignFileError, RunDirError

NOISE = np.random.default_rng(3).normal(0, 0.2, 4000)


def run(make_side, step: float = 20.0, name: str = "run"):
    side = make_side(step_ms=list(step + NOISE[:40]))
    side.name = name
    return side


@pytest.fixture(params=["folder", "memory"])
def store(request, tmp_path) -> Store:
    return Store(str(tmp_path / "b") if request.param == "folder" else f"memory://{tmp_path.name}")


def test_runs_come_back_as_they_were_put(store: Store, make_side) -> None:
    assert store.names() == []
    first, second = run(make_side, 20, "one"), run(make_side, 21, "two")
    assert store.put("gpt", first, "2026-01-01", replace=True) == 1
    assert store.put("gpt", second, "2026-01-02", replace=False) == 2
    assert store.names() == ["gpt"]
    assert [own.name for own in store.runs("gpt")] == ["one", "two"]
    side = store.side("gpt")
    assert (side.name, side.ranks, len(side.replicates)) == ("gpt", second.ranks, 1)
    assert side.unrecorded_ms == pytest.approx(second.unrecorded_ms, abs=1e-4)
    assert store.put("gpt", first, "", replace=True) == 1
    assert [own.name for own in store.runs("gpt")] == ["one"]


def test_a_run_of_another_job_is_refused(store: Store, make_side) -> None:
    store.put("gpt", run(make_side), "", replace=True)
    other = run(make_side)
    other.report.run.world_size = 8
    with pytest.raises(ConfigError, match=r"2 ranks against 8.*begins anew"):
        store.put("gpt", other, "", replace=False)


def test_the_oldest_run_stays_and_others_make_room(tmp_path, make_side) -> None:
    store = Store(str(tmp_path))
    for number in range(KEPT + 3):
        count = store.put("gpt", run(make_side, name=f"run{number}"), "", replace=False)
    names = [own.name for own in store.runs("gpt")]
    assert (count, len(names), names[0], names[1], names[-1]) == (KEPT, KEPT, "run0", "run4", f"run{KEPT + 2}")


def test_neither_a_run_twice_nor_a_report_alone_is_put_in(store: Store, make_side) -> None:
    store.put("gpt", run(make_side), "2026-01-01", replace=True)
    with pytest.raises(ConfigError, match="run is in baseline gpt already"):
        store.put("gpt", run(make_side), "2026-01-01", replace=False)
    alone = run(make_side)
    alone.ranks, alone.unrecorded_ms = [], np.empty(0)
    with pytest.raises(ConfigError, match="only a report"):
        store.put("gpt", alone, "2026-01-02", replace=False)
    assert store.count("gpt") == 1


def test_two_jobs_may_add_a_run_at_the_same_time(store: Store, make_side, monkeypatch) -> None:
    """Both have listed the same files before either writes its own."""
    store.put("gpt", run(make_side, name="first"), "", replace=True)
    listed = store._places("gpt")
    for name in ("one", "other"):
        with monkeypatch.context() as patched:
            patched.setattr(Store, "_places", lambda *_: listed)
            store.put("gpt", run(make_side, name=name), "", replace=False)
    names = [own.name for own in store.runs("gpt")]
    assert (names[0], sorted(names)) == ("first", ["first", "one", "other"])


def test_a_run_that_another_job_removes_is_left_out(tmp_path, make_side, monkeypatch) -> None:
    store = Store(str(tmp_path))
    for name in ("one", "other"):
        store.put("gpt", run(make_side, name=name), "", replace=False)
    listed = [str(path) for path in sorted((tmp_path / "gpt").iterdir())]
    (tmp_path / "gpt" / listed[0]).unlink()
    monkeypatch.setattr(Store, "_places", lambda *_: listed)
    assert [own.name for own in store.runs("gpt")] == ["other"]
    assert store.put("gpt", run(make_side, name="new"), "", replace=True) == 1  # removes both
    assert not (tmp_path / "gpt" / listed[1]).exists()


def test_files_of_earlier_versions_and_large_numbers_are_in_order(tmp_path, make_side) -> None:
    store = Store(str(tmp_path))
    for number in ("0001", "9999", "10000"):
        store.put("gpt", run(make_side, name=number), "", replace=False)
        newest = max((tmp_path / "gpt").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        newest.rename(tmp_path / "gpt" / f"{number}.json.gz")
    store.put("gpt", run(make_side, name="10001"), "", replace=False)
    assert [own.name for own in store.runs("gpt")] == ["0001", "9999", "10000", "10001"]


def test_unusable_runs_are_refused_with_a_reason(tmp_path, make_side) -> None:
    store = Store(str(tmp_path))
    with pytest.raises(ConfigError, match="there is no baseline gpt"):
        store.runs("gpt")
    with pytest.raises(ConfigError, match="is no name"):
        store.put("../x", run(make_side), "", replace=True)
    store.put("gpt", run(make_side), "", replace=True)
    (file,) = (tmp_path / "gpt").iterdir()
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ForeignFileError, match="is cut off"):
        store.runs("gpt")
    file.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(ForeignFileError, match="name: is missing"):
        store.runs("gpt")
    with pytest.raises(RunDirError, match="is a file"):
        Store(str(file)).names()
    with pytest.raises(RunDirError, match="cannot be used as a place"):
        Store("nosuchprotocol://x").names()


def test_history_reports_a_change_and_a_creep(make_side) -> None:
    levels = [20.0] * 8 + [22.0] * 8
    runs = [summary_of(run(make_side, level + NOISE[100 + n] / 10, f"r{n}")) for n, level in enumerate(levels)]
    found = history("gpt", runs)
    assert [change.index for change in found.changes] == [8]
    assert found.creeps
    assert "20.0 -> 22.0 ms from r8 on" in pages.terminal(found)
    slow = [summary_of(run(make_side, 20 * 1.01**n, f"r{n}")) for n in range(7)]
    creeping = history("gpt", slow)
    assert creeping.changes == []
    assert creeping.creep == pytest.approx(0.0615, abs=0.001)
    assert "Creeping: the last run is 6.2% slower" in pages.terminal(creeping)


def test_a_history_without_changes_reports_none(make_side) -> None:
    found = history("gpt", [summary_of(run(make_side, 20 + NOISE[n], f"r{n}")) for n in range(12)])
    assert (found.changes, found.creeps) == ([], False)
    assert pages.terminal(found).endswith("Nothing changed for good.\n")


def test_the_page_escapes_names_and_needs_nothing_from_elsewhere(make_side) -> None:
    page = pages.html(history("<b>gpt", [summary_of(run(make_side, 20, "<script>"))] * 9))
    assert "<script>" not in page
    assert "&lt;b&gt;gpt" in page
    assert "http" not in page
    assert page.count("<circle") == 9
