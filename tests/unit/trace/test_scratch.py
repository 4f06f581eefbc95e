"""Columns in scratch files: the same values, whatever happens to their pages, and memory where files are no use."""

from __future__ import annotations

import shutil
import threading
from types import SimpleNamespace
from weakref import WeakSet

import numpy as np
import pytest

from rankscope.trace import scratch
from rankscope.trace.scratch import GrowingTable, Scratch, give_back, release

COLUMN = np.arange(100_000, dtype=np.int64)


def test_what_fits_into_memory_is_kept_there() -> None:
    kept = Scratch(kept=COLUMN.nbytes)
    assert kept.keep(COLUMN) is COLUMN
    assert kept.keep(COLUMN) is not COLUMN


def test_values_are_the_same_before_and_after_their_pages_are_released() -> None:
    moved = Scratch(kept=0).keep(COLUMN)
    release()
    give_back()
    assert moved.dtype == COLUMN.dtype
    assert (moved == COLUMN).all()
    moved[5] = -1  # as writable as memory
    release()
    assert moved[4:7].tolist() == [4, -1, 6]
    assert COLUMN[5] == 5


def test_columns_do_not_overlap() -> None:
    files = Scratch(kept=0)
    columns = [files.keep(np.full(n, n, np.int16)) for n in (0, 1, 33, 7)]
    assert [column.tolist() for column in columns] == [[n] * n for n in (0, 1, 33, 7)]


def test_a_column_larger_than_a_file_gets_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_FILE", 4096)
    files = Scratch(kept=0)
    small, large, next_one = files.keep(COLUMN[:8]), files.keep(COLUMN), files.keep(COLUMN[8:16])
    assert small.tolist() + large[8:10].tolist() + next_one.tolist() == [*range(10), *range(8, 16)]


def test_a_disk_that_would_be_full_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=1 << 30, free=150 << 20))
    assert Scratch(kept=0).keep(COLUMN) is COLUMN  # 64 MB more would leave less than a tenth of 1 GB


def test_a_thread_releases_pages_as_long_as_there_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    released, enough = [], threading.Event()

    def release() -> None:
        released.append(None)
        if len(released) == 2:
            enough.set()

    monkeypatch.setattr(scratch, "_EVERY_S", 0.001)
    monkeypatch.setattr(scratch, "_HELD", 0)
    monkeypatch.setattr(scratch, "_MAPPED", WeakSet())
    monkeypatch.setattr(scratch, "release", release)
    moved = Scratch(kept=0).keep(COLUMN)
    assert enough.wait(60)
    assert (moved == COLUMN).all()
    (thread,) = [t for t in threading.enumerate() if t.name == "rankscope-scratch" and t.is_alive()][-1:]
    del moved
    thread.join(60)
    assert not thread.is_alive()


def _grown(kept: int) -> list[list[float]]:
    table = GrowingTable([np.int32, np.float64], kept)
    for n in range(5):
        table.append(np.full(n, n), np.arange(n) / 2)
    return [column.tolist() for column in table.columns()]


GROWN = [[1, 2, 2, 3, 3, 3, 4, 4, 4, 4], [0, 0, 0.5, 0, 0.5, 1, 0, 0.5, 1, 1.5]]


@pytest.mark.parametrize("kept", [1000, 50, 0])
def test_a_table_grows_in_memory_and_then_in_files(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """12 bytes a row: 36 bytes after the third piece, 120 in all."""
    monkeypatch.setattr(scratch, "_FILE", 16)
    assert _grown(kept) == GROWN


@pytest.mark.parametrize("files", [0, 1, 2, 3, 5])
def test_a_table_stays_in_memory_as_far_as_the_disk_has_no_room(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """Room for none, or for the first of these requests."""
    free = iter([1 << 30] * files + [0] * 50)
    monkeypatch.setattr(scratch, "_FILE", 16)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=1 << 30, free=next(free)))
    assert _grown(0) == GROWN


def test_an_empty_table_has_empty_columns() -> None:
    assert [column.dtype for column in GrowingTable([np.int8, np.float64]).columns()] == [np.int8, np.float64]
