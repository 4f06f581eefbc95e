"""No file of a run is overwritten, and no node takes the claim of another."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rankscope.errors import RunDirError
from rankscope.rundir.claim import claim, next_run_dir
from rankscope.rundir.files import write_new
from rankscope.rundir.layout import RunDir
from rankscope.rundir.numbered import next_folder


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


def take(run, node, launch="rendezvous job", *, alone=False, owner="", pid=None, elastic=False):
    return claim(run, "job", node, launch=launch, alone=alone, owner=owner, pid=pid, elastic=elastic)


def test_nodes_of_one_run_share_a_directory(tmp_path):
    run = RunDir(tmp_path / "R")
    assert take(run, "0").node == "node_0"
    assert take(run, "1").node == "node_1"
    with pytest.raises(RunDirError, match="belongs to run 'job'"):
        take(run, "1")
    with pytest.raises(RunDirError, match="belongs to run 'job'"):
        take(run, "2", "rendezvous another")


def test_a_launch_on_one_node_shares_with_nobody(tmp_path):
    run = RunDir(tmp_path / "R")
    take(run, None, "launch 1", alone=True)
    for launch, alone in (("launch 2", True), ("rendezvous job", False)):
        with pytest.raises(RunDirError, match="belongs to run 'job'"):
            take(run, None, launch, alone=alone)
    assert len(list(run.nodes.glob("*.claim.json"))) == 1


def test_a_launch_on_another_host_is_refused_before_it_leaves_a_claim(tmp_path, monkeypatch):
    run = RunDir(tmp_path / "R")
    take(run, None, "launch 1", alone=True)
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    with pytest.raises(RunDirError, match="belongs to run 'job'"):
        take(run, None, "launch 2", alone=True)
    assert not run.node_claim("elsewhere").exists()


def test_launchers_of_one_host_get_places_of_their_own_while_they_live(tmp_path):
    run, host = RunDir(tmp_path / "R"), socket.gethostname()
    assert [take(run, None).node for _ in range(2)] == [host, f"{host}.1"]
    # WHEN the first was an earlier run whose process is gone (pid 2**22 + 1 is above Linux's limit)
    (tmp_path / "S").mkdir()
    run = RunDir(tmp_path / "S")
    take(run, None, pid=2**22 + 1)
    with pytest.raises(RunDirError, match=r"needs a run\.dir of its own"):
        take(run, None)
    # unless nodes come and go: it has left, and has come back; but never into another run
    assert take(run, None, elastic=True).node == f"{host}.1"
    with pytest.raises(RunDirError, match="belongs to run"):
        take(run, None, "rendezvous another", elastic=True)


def test_a_helper_that_follows_another_has_its_claim(tmp_path):
    run = RunDir(tmp_path / "R")
    first = take(run, None, "launch 1", alone=True, owner="/tmp/spool")
    assert take(run, None, "launch 1", alone=True, owner="/tmp/spool") == first


@pytest.mark.parametrize("name", ["launch.json", "other.claim.json"])
@pytest.mark.parametrize("content", [None, "", "[1]", "{}", "x" * 100_000])
def test_a_claim_that_is_none_is_refused_and_never_waited_for(tmp_path, name, content):
    run = RunDir(tmp_path / "R")
    run.nodes.mkdir(parents=True)
    if content is None:
        os.mkfifo(run.nodes / name)
    else:
        (run.nodes / name).write_text(content)
    with pytest.raises(RunDirError):
        take(run, None)


def test_a_finished_run_is_refused(tmp_path):
    run = RunDir(tmp_path)
    run.manifest.write_text("{}")
    with pytest.raises(RunDirError, match="finished run"):
        take(run, None)


def test_folders_that_nobody_named_are_numbered(tmp_path: Path) -> None:
    for name in ("sweep_0001", "sweep_0007", "sweep_x", "run_0009", "sweep_12345"):
        (tmp_path / name).mkdir()
    assert next_folder(tmp_path, "sweep", "--dir") == tmp_path / "sweep_12346"
    assert next_folder(tmp_path / "new" / "base", "run", "-S run.dir=") == tmp_path / "new" / "base" / "run_0001"
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="name one with --dir"):
        next_folder(tmp_path / "file", "sweep", "--dir")
