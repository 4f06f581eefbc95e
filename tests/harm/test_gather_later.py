"""Files that had to stay in a spool are placed later by the command that the launcher printed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from rankscope import cli
from rankscope.errors import ConfigError, RunDirError
from rankscope.node.late_gathering import gather_later
from support.ending import ending
from support.node import Node, until


def statuses(node: Node) -> list[tuple[int, str]]:
    (window,) = node.manifest.windows
    return [(record.rank, record.status) for record in window.records]


def test_what_a_full_store_did_not_take_is_placed_when_there_is_room(make, capsys):
    # GIVEN a store that takes small files only, a job that ends with 1, and a run.json that says what is missing
    node = make().start()
    resource.prlimit(node.helper.pid, resource.RLIMIT_FSIZE, (16384, 16384))
    node.lives(0), node.lives(1)
    noise = os.urandom(1 << 16).hex()
    node.records(0, f'{{"noise": "{noise}"}}'), node.records(1)
    words = node.end(exit_code=1)
    assert statuses(node) == [(0, "missing"), (1, "ok")]
    assert any(f"`rankscope gather {node.spool.path}`" in word.text for word in words)
    # WHEN there is room
    code = cli.main(["gather", str(node.spool.path)])
    # THEN everything is there, and run.json says so
    assert code == 0
    assert f"{node.run.path}: 1 trace(s) placed" in capsys.readouterr().out
    assert statuses(node) == [(0, "ok"), (1, "ok")]
    assert node.run.trace(0, 0, 0).exists()
    assert node.manifest.exit_code == 1
    assert not any(str(node.spool.path) in note for note in node.manifest.notes)
    assert any("gathered later" in note for note in node.manifest.notes)
    assert not node.spool.path.exists()


def test_a_spool_whose_helper_and_launcher_are_gone(make):
    # GIVEN a node on which everything was killed, before anything was gathered
    node = make().start()
    node.lives(0), node.lives(1)
    node.kill()
    node.records(0), node.records(1)
    gathered = gather_later(node.spool.path)
    assert (gathered.windows, gathered.left) == (2, "")
    assert statuses(node) == [(0, "ok"), (1, "ok")]
    assert node.manifest.exit_code is None  # nobody lived to see it
    assert not node.spool.path.exists()


def test_the_exit_code_is_known_where_the_store_hung(make):
    node = make().start()
    node.lives(0, world=1)
    node.spool.record(0, 3, 0).mkdir()  # which nobody can place, so that the spool stays
    node.end(exit_code=7)
    for path in (node.run.manifest, *node.run.nodes.glob("*.result.json")):  # as if they had not been written
        path.unlink()
    assert gather_later(node.spool.path).left
    assert node.manifest.exit_code == 7


def test_a_run_directory_that_belongs_to_another_job_is_not_touched(make, tmp_path):
    other = make("other").start()
    other.lives(0, world=1)
    other.end()
    before = sorted((path, path.read_bytes()) for path in other.run.path.rglob("*") if path.is_file())
    node = make(launch="launch 2")
    node.lives(0), node.lives(1)
    node.records(0), node.records(1)
    with pytest.raises(RunDirError, match="finished run"):
        gather_later(node.spool.path)
    assert sorted((path, path.read_bytes()) for path in other.run.path.rglob("*") if path.is_file()) == before
    gathered = gather_later(node.spool.path, tmp_path / "ELSEWHERE")
    assert gathered.run_dir.path == tmp_path / "ELSEWHERE"
    assert (gathered.run_dir.trace(0, 0, 1).exists(), gathered.left) == (True, "")


def test_a_helper_that_works_is_left_to_it(make):
    node = make().start()
    node.lives(0, world=1)
    with pytest.raises(RunDirError, match="node helper still works"):
        gather_later(node.spool.path)
    node.end()
    assert node.manifest.world_size == 1


def test_a_rank_that_still_trains_is_waited_for(make):
    node = make().start()
    node.spool.step_ring(0, 0).touch()
    holds = f"import time; ring = open({str(node.spool.step_ring(0, 0))!r}); print(1, flush=True); time.sleep(1000)"
    with ending(subprocess.Popen([sys.executable, "-I", "-c", holds], stdout=subprocess.PIPE)) as rank:
        rank.stdout.readline()
        node.kill()
        node.lives(0, pid=rank.pid, world=1)
        with pytest.raises(RunDirError, match="rank 0 still writes"):
            gather_later(node.spool.path)
        rank.kill()
    until(lambda: rank.poll() is not None)
    assert gather_later(node.spool.path).left == ""


def test_a_node_that_comes_late_is_added_to_run_json(make):
    words = {"alone": False, "launch": "rendezvous 7", "run_id": "7", "gather_timeout_s": 1.0}
    zero, one = make("zero", node="0", **words).start(), make("one", node="1", **words).start()
    zero.lives(0), one.lives(1)
    zero.records(0), one.records(1)
    one.kill()
    zero.end(exit_code=1)
    assert "node node_1 left no result within 1 s" in zero.manifest.notes
    gather_later(one.spool.path)
    assert statuses(zero) == [(0, "ok"), (1, "ok")]
    assert zero.manifest.exit_code == 1
    assert not any("left no result" in note for note in zero.manifest.notes)


@pytest.mark.parametrize("what", ["nothing", "a folder", "a run directory"])
def test_what_is_no_spool_is_refused(make, tmp_path, capsys, what):
    folder = tmp_path / "folder"
    if what != "nothing":
        folder.mkdir()
    if what == "a run directory":
        node = make().start()
        node.lives(0, world=1)
        node.end()
        folder = node.run.path
    assert cli.main(["gather", str(folder)]) == ConfigError.exit_code
    assert "is no spool" in capsys.readouterr().err


def test_what_still_cannot_be_placed_stays_and_is_reported(make, monkeypatch):
    node = make()
    node.lives(0, world=1)
    node.records(0, world=1)

    def full(*_words):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("rankscope.node.gathering.gather.place", full)
        assert cli.main(["gather", str(node.spool.path)]) == RunDirError.exit_code
    assert list(node.spool.path.glob("trace_*"))
    assert "it is in" in node.manifest.windows[0].records[0].reason
    assert cli.main(["gather", str(node.spool.path)]) == 0
    assert statuses(node) == [(0, "ok")]
    assert not node.spool.path.exists()
