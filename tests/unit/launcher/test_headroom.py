"""If few processes or descriptors are left, they are left to the job."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from rankscope.launcher import headroom

ALL = resource.RLIM_INFINITY


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A machine with these limits and processes, and control groups /a/b."""

    def machine(*, descriptors=ALL, processes=ALL, threads=(), pids=None):
        limits = {resource.RLIMIT_NOFILE: descriptors, resource.RLIMIT_NPROC: processes}
        monkeypatch.setattr(resource, "getrlimit", lambda which: (limits[which],) * 2)
        monkeypatch.setattr(headroom, "_PROC", tmp_path / "proc")
        monkeypatch.setattr(headroom, "_CGROUPS", tmp_path / "groups")
        for number, count in enumerate(threads, 1):
            for thread in range(count):
                (tmp_path / "proc" / str(number) / "task" / str(thread)).mkdir(parents=True)
        own = tmp_path / "proc" / "self"
        (own / "fd").mkdir(parents=True)
        (own / "cgroup").write_text("8:pids:/\n0::/a/b\n")
        inner = tmp_path / "groups" / "a" / "b"
        inner.mkdir(parents=True)
        for folder, (most, current) in zip((inner, inner.parent), pids or (), strict=False):
            (folder / "pids.max").write_text(f"{most}\n")
            (folder / "pids.current").write_text(f"{current}\n")

    return machine


def test_nothing_is_limited(machine):
    machine()
    headroom.leave_enough()


@pytest.mark.parametrize(("limit", "refused"), [(63, True), (64, False)])
def test_descriptors(machine, limit, refused):
    machine(descriptors=limit)
    if refused:
        with pytest.raises(OSError, match=r"only 63 file descriptors are left of the limit of 63 \(ulimit -n\)"):
            headroom.leave_enough()
    else:
        headroom.leave_enough()


def test_processes_of_the_container_by_the_tightest_group(machine):
    machine(pids=[("max", 1), (100, 40)])  # 60 are left in /a
    with pytest.raises(
        OSError, match=r"only 60 processes or threads are left of the limit of 100 \(pids.max of .*/a\)"
    ):
        headroom.leave_enough()


def test_a_container_with_room(machine):
    machine(pids=[(1000, 40), ("max", 500)])
    headroom.leave_enough()


@pytest.mark.parametrize(("limit", "left"), [(100, 57), (43, 0), (20, 0)])
def test_threads_of_the_user(machine, monkeypatch, tmp_path, limit, left):
    # GIVEN processes of 3 and 40 threads, of this user, whoever that is here
    machine(processes=limit, threads=(3, 40))
    monkeypatch.setattr(headroom, "_threads_of_mine", lambda process: len(list((process / "task").iterdir())))
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(
        OSError, match=rf"only {left} processes or threads are left of the limit of {limit} \(ulimit -u"
    ):
        headroom.leave_enough()


def test_the_superuser_has_no_such_limit(machine, monkeypatch):
    machine(processes=1, threads=(3,))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    headroom.leave_enough()


def test_processes_of_others_and_those_that_have_ended_do_not_count(tmp_path, monkeypatch):
    (tmp_path / "task" / "1").mkdir(parents=True)
    mine = tmp_path.stat().st_uid
    assert headroom._threads_of_mine(tmp_path) == (1 if mine == os.getuid() else 0)
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    assert headroom._threads_of_mine(tmp_path) == 0
    assert headroom._threads_of_mine(tmp_path / "gone") == 0
