"""Nothing is overwritten, and nobody takes another's seat."""

from __future__ import annotations

import json
import os
import socket

import pytest

from rankscope.errors import RunDirError
from rankscope.rundir.claim import claim, next_run_dir
from rankscope.rundir.files import write_new
from rankscope.rundir.layout import RunDir


def test_write_new_refuses_to_replace_and_leaves_no_temporary(tmp_path):
    write_new(tmp_path / "a", "first")
    with pytest.raises(RunDirError, match="not overwritten"):
        write_new(tmp_path / "a", "second")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "first")]


def test_write_new_without_hard_links(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    write_new(tmp_path / "a", "first")
    with pytest.raises(RunDirError, match="not overwritten"):
        write_new(tmp_path / "a", "second")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "first")]


def test_run_directories_are_numbered(tmp_path):
    (tmp_path / "run_0007").mkdir()
    (tmp_path / "run_notes").mkdir()
    assert [next_run_dir(tmp_path)[1] for _ in range(2)] == ["run_0008", "run_0009"]


def test_nodes_of_one_run_share_a_directory(tmp_path):
    run = RunDir(tmp_path / "R")
    assert claim(run, "job", "0").node == "node_0"
    assert claim(run, "job", "1").node == "node_1"
    with pytest.raises(RunDirError, match="already used by node_1"):
        claim(run, "job", "1")
    with pytest.raises(RunDirError, match="belongs to run 'job'"):
        claim(run, "another", "2")


def test_launchers_of_one_host_get_seats_of_their_own_while_they_live(tmp_path):
    run, host = RunDir(tmp_path / "R"), socket.gethostname()
    assert [claim(run, "job", None).node for _ in range(2)] == [host, f"{host}.1"]
    # WHEN the first was an earlier run whose process is gone (pid 2**22 + 1 is above Linux's limit)
    run.node_claim(host).write_text(json.dumps({"run_id": "job", "host": host, "pid": 2**22 + 1}))
    with pytest.raises(RunDirError, match=r"needs its own run\.dir"):
        claim(run, "job", None)


def test_a_finished_run_is_refused(tmp_path):
    run = RunDir(tmp_path)
    run.manifest.write_text("{}")
    with pytest.raises(RunDirError, match="finished run"):
        claim(run, "job", None)
