"""A trace is placed only if the disk has enough space for it and for the job, within the node's quota."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from rankscope.node.gathering.disk_limits import DiskLimits
from rankscope.node.gathering.gather import Gatherer
from rankscope.node.gathering.leftovers import left_in_words
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

from .test_gather import announce


def disk(monkeypatch, free: int, blocks: int = 1000) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=blocks))


@pytest.mark.parametrize(
    ("limits", "placed", "refused"),
    [  # 4,000 bytes of text are packed to 1,000 at most; 10,000 are free
        (DiskLimits(), 0, None),
        (DiskLimits(leave_free=9_000), 0, None),
        (DiskLimits(leave_free=9_001), 0, "leave_free_gb"),
        (DiskLimits(most=3_000), 2_000, None),
        (DiskLimits(most=3_000), 2_001, "most_gb"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_limit(monkeypatch, tmp_path, limits, placed, refused):
    disk(monkeypatch, 10_000)
    if refused is None:
        limits.require(tmp_path, 4_000, placed)
        return
    with pytest.raises(OSError, match=refused):
        limits.require(tmp_path, 4_000, placed)


def test_a_store_that_does_not_count_its_blocks_is_not_full(monkeypatch, tmp_path):
    disk(monkeypatch, 0, blocks=0)
    DiskLimits(leave_free=1).require(tmp_path, 4_000, 0)


def test_a_full_disk_leaves_the_trace_in_the_spool_and_is_reported_until_there_is_room(monkeypatch, tmp_path):
    spool, run = Spool(tmp_path / "spool"), RunDir(tmp_path / "run")
    spool.path.mkdir()
    announce(spool, '{"traceEvents": []}')
    gatherer = Gatherer(spool, run, limits=DiskLimits(leave_free=1_000))
    disk(monkeypatch, 900)
    assert gatherer.gather() == []
    assert spool.trace(0, 2, 3).exists()
    assert not run.trace(0, 2, 3).exists()
    assert "gather.leave_free_gb" in left_in_words(spool, gatherer.left)
    disk(monkeypatch, 90_000)
    (record,) = gatherer.gather()
    assert run.trace(0, 2, 3).exists()
    assert (record.status, gatherer.left) == ("ok", {})


def test_a_record_with_a_memory_snapshot_waits_for_room_for_both(monkeypatch, tmp_path):
    spool, run = Spool(tmp_path / "spool"), RunDir(tmp_path / "run")
    spool.path.mkdir()
    announce(spool, '{"traceEvents": []}')
    path = spool.record(0, 2, 3)
    snapshot = spool.path / "memory.pickle"
    snapshot.write_bytes(bytes(5_000))
    path.write_text(path.read_text().replace('"snapshot": null', '"snapshot": "memory.pickle"'))
    spool.out_of_memory(0, 3).write_bytes(bytes(5_000))
    gatherer = Gatherer(spool, run, limits=DiskLimits(leave_free=1_000))
    disk(monkeypatch, 5_900)
    gatherer.gather_out_of_memory()
    assert gatherer.gather() == []
    assert not [path for path in run.path.rglob("*") if path.is_file()]
    assert len(gatherer.left) == 2
    disk(monkeypatch, 90_000)
    gatherer.gather_out_of_memory()
    assert [record.snapshot for record in gatherer.gather()] == [run.snapshot(0, 2, 3).name]
    assert gatherer.left == {}
    assert run.out_of_memory(0, 3).exists()


def test_the_quota_counts_what_earlier_helpers_of_the_node_have_placed(tmp_path):
    spool, run = Spool(tmp_path / "spool"), RunDir(tmp_path / "run")
    spool.path.mkdir()
    announce(spool, '{"traceEvents": []}')
    (record,) = Gatherer(spool, run).gather()
    size = run.trace(0, 2, 3).stat().st_size
    spool.placed(0, 2, 3).rename(spool.placed(0, 1, 3))  # of another window, so that this one is announced anew
    run.window(0, 2).rename(run.window(0, 1))
    record.window = 1
    spool.placed(0, 1, 3).write_text(spool.placed(0, 1, 3).read_text().replace('"window": 2', '"window": 1'))
    announce(spool, '{"traceEvents": []}')
    full = Gatherer(spool, run, limits=DiskLimits(most=size))
    assert full.gather() == []
    assert "gather.most_gb" in next(iter(full.left.values()))
    assert len(Gatherer(spool, run, limits=DiskLimits(most=size + 5)).gather()) == 1
