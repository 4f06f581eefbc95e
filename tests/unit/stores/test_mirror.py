"""A folder and its run directory in a store: uploaded whole, read back, continued, run.json last."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rankscope import own_process
from rankscope.errors import RunDirError
from rankscope.node.mirroring import Mirroring
from rankscope.rundir.urls import is_url, last_name, url_of
from rankscope.stores.fetched import fetched
from rankscope.stores.mirror import NOTES, Mirror
from rankscope.stores.paced import paced

pytest.importorskip("fsspec")


def world(tmp_path: Path) -> tuple[Path, Path, str]:
    """A node's part of a run, and the store."""
    part, store = tmp_path / "part", tmp_path / "store" / "run"
    for name in ("run.json", "nodes/a.result.json", "attempt_0/window_000/rank_00000.trace.json.gz", "z.txt"):
        path = part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    for name in ("attempt_0/window_000/rank_00000.parquet", "attempt_0/window_000/.rank_1.json.host.7.tmp"):
        (part / name).write_text("only here")
    return part, store, store.as_uri()


def in_store(store: Path) -> list[str]:
    return sorted(path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file())


EXPECTED = ["attempt_0/window_000/rank_00000.trace.json.gz", "nodes/a.result.json", "run.json", "z.txt"]


def test_all_but_caches_and_temporary_files_goes_there_once(tmp_path: Path) -> None:
    part, store, url = world(tmp_path)
    assert Mirror(part, url).push() == len(EXPECTED)
    assert in_store(store) == EXPECTED
    assert Mirror(part, url).push() == 0  # another process knows what this one has noted
    (part / "run.json").write_text("another text")
    assert Mirror(part, url).push() == 1
    assert (store / "run.json").read_text() == "another text"


def test_large_files_show_that_they_move(tmp_path: Path) -> None:
    part, _, url = world(tmp_path)
    moves: list[None] = []
    Mirror(part, url, lambda: moves.append(None)).push()
    # reading back: each file, and each end, also where a file system does not tell of what it writes
    assert len(moves) >= 2 * len(EXPECTED)
    s3 = paced(lambda **_: None, lambda local, remote, callback, chunksize, max_concurrency: None, lambda: None)
    assert (s3["chunksize"], s3["max_concurrency"]) == (5 << 20, 1)
    before = len(moves)
    s3 = paced(lambda local, remote, **_more: None, None, lambda: moves.append(None))
    s3["callback"].relative_update(7)
    assert (list(s3), len(moves)) == (["callback"], before + 1)


_ANSWERS = """
import sys
for line in sys.stdin:
    print('{"moved": true}\\n{"moved": true}\\n{"done": 3}', flush=True)
"""


def test_signs_that_files_move_are_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process, "command", lambda *_: [sys.executable, "-c", _ANSWERS])
    mirroring = Mirroring(tmp_path, "file:///nowhere", limit_s=300)
    try:
        assert [mirroring._ask(do="push"), mirroring._ask(do="push")] == [3, 3]
    finally:
        mirroring.end()


class _Broken:
    """A store that takes so many files, and then is gone or keeps half of each."""

    def __init__(self, mirror: Mirror, takes: int, half: bool) -> None:
        self.put: list[str] = []
        whole = mirror._files.put_file

        def put_file(local: str, remote: str, **more: Any) -> Any:
            self.put.append(remote)
            if len(self.put) <= takes:
                return whole(local, remote, **more)
            if not half:
                raise ConnectionError("the store is gone")
            Path(remote).write_bytes(Path(local).read_bytes()[:3])
            return None

        mirror._files.put_file = put_file  # type: ignore[method-assign]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("takes", range(len(EXPECTED)))
def test_run_json_is_never_there_without_all_that_it_knows(takes: int, half: bool, tmp_path: Path) -> None:
    part, store, url = world(tmp_path)
    mirror = Mirror(part, url)
    whole = mirror._files.put_file
    try:
        _Broken(mirror, takes, half)
        with pytest.raises(OSError, match=r"reads otherwise|gone"):
            mirror.push()
    finally:
        mirror._files.put_file = whole  # fsspec keeps its file systems
    order = [*(name for name in EXPECTED if name not in ("run.json", "nodes/a.result.json")), "nodes/a.result.json"]
    assert [name for name in order if (store / name).exists()][:takes] == order[:takes]
    assert not (store / "run.json").exists() or takes == 3
    Mirror(part, url).push()  # the next process
    assert {name: (store / name).read_text() for name in EXPECTED} == {n: f"text of {n}" for n in EXPECTED}


def test_what_a_store_has_lost_since_it_gets_again(tmp_path: Path) -> None:
    part, store, url = world(tmp_path)
    Mirror(part, url).push()
    (store / "z.txt").unlink()
    (store / "run.json").write_text("x" * len("text of run.json"))
    assert Mirror(part, url).push() == 2
    assert in_store(store) == EXPECTED
    assert (store / "run.json").read_text() == "text of run.json"


def test_a_note_that_was_cut_off_costs_a_second_look(tmp_path: Path) -> None:
    part, store, url = world(tmp_path)
    Mirror(part, url).push()
    notes = part / NOTES
    notes.write_bytes(notes.read_bytes()[:-20])
    (store / "run.json").write_text("damaged beh")
    (store / "run.json").write_text("damaged while it was away")
    assert Mirror(part, url).push() == 1
    assert (store / "run.json").read_text() == "text of run.json"


def test_what_others_left_comes_here_and_comes_again_when_it_is_renewed(tmp_path: Path) -> None:
    _, store, url = world(tmp_path)
    Mirror(tmp_path / "part", url).push()
    other = tmp_path / "other"
    (other / "nodes").mkdir(parents=True)
    (other / "nodes" / "b.result.json").write_text("mine")
    mirror = Mirror(other, url)
    mirror.push()
    assert mirror.pull("nodes/") == 1
    assert (other / "nodes" / "a.result.json").read_text() == "text of nodes/a.result.json"
    assert mirror.pull("nodes/") == 0
    (store / "nodes" / "a.result.json").write_text("renewed, and longer than it was")
    assert mirror.pull("nodes/") == 1
    (store / "nodes" / "b.result.json").write_text("of somebody else")
    assert mirror.pull("nodes/") == 0  # ours is ours
    assert mirror.push() == 1  # and what came from there is not sent back
    assert (store / "nodes" / "a.result.json").read_text() == "renewed, and longer than it was"
    assert (store / "nodes" / "b.result.json").read_text() == "mine"


def test_a_place_is_given_once(tmp_path: Path) -> None:
    _, _, url = world(tmp_path)
    mirrors = []
    for name in "xy":
        folder = tmp_path / name
        folder.mkdir()
        (folder / "launch.json").write_text(name)
        mirrors.append(Mirror(folder, url))
    assert [mirror.claim("launch.json") for mirror in (*mirrors, mirrors[0])] == [True, False, True]


def test_a_store_that_fsspec_does_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"nowhere://b/c cannot be used as a store: Protocol not known"):
        Mirror(tmp_path, "nowhere://b/c")


@pytest.mark.parametrize(
    ("text", "url"),
    [("s3://bucket/run_1", "s3://bucket/run_1"), ("sftp://me@host/a/b", "sftp://me@host/a/b"),
     ("file:///tmp/x", "file:///tmp/x"), ("C:/x", None), ("runs/0001", None), ("./s3:/x", "s3://x")],
)  # fmt: skip
def test_urls_that_were_taken_for_paths(text: str, url: str | None) -> None:
    assert url_of(Path(text)) == url
    assert is_url(text) == (url is not None and not text.startswith("."))
    assert last_name("s3://bucket/run_1/") == "run_1"


def test_a_run_in_a_store_is_read_as_run_json_knows_it(tmp_path: Path) -> None:
    part, store, url = world(tmp_path)
    sums = {
        name: {"sha256": hashlib.sha256((part / name).read_bytes()).hexdigest(), "bytes": (part / name).stat().st_size}
        for name in EXPECTED
        if name != "run.json"
    }
    text = {"run_id": "r", "argv": [], "config": {}, "versions": {}, "hosts": [], "world_size": 1, "attempts": 1,
            "exit_code": 0, "windows": [], "lives": [], "files": sums}  # fmt: skip
    (part / "run.json").write_text(json.dumps(text))
    Mirror(part, url).push()
    (store / "nodes" / "a.result.json").write_text("text of nodes/b.result.json")
    said: list[str] = []
    with fetched(Path(url), tell=said.append) as copy:
        assert copy.name == "run"
        assert (copy / EXPECTED[0]).read_text() == f"text of {EXPECTED[0]}"
        assert not (copy / "nodes" / "a.result.json").exists()
    assert said == [f"{url}/nodes/a.result.json is not the file that run.json knows, and is left out"]
    assert not copy.exists()
    with fetched(part) as itself:
        assert itself == part
    with pytest.raises(RunDirError, match="holds no run"), fetched(Path(f"{url}/nothing")):
        pass
