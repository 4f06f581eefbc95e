"""run.dir in a store: real helpers, and a store that is killed and restarted during writes.

The store is moto's S3 server, where moto and s3fs are installed, and a folder behind fsspec, which cannot be killed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rankscope.node.late_gathering import gather_later
from rankscope.privacy.verify import verify
from rankscope.records.codec import from_json
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport
from rankscope.rundir.layout import RunDir
from rankscope.stores.mirror import NOTES, Mirror
from support.ending import end
from support.launching import free_port
from support.node import Node, until
from support.worlds.catalogue import waiting_for_input

pytestmark = [pytest.mark.data, pytest.mark.long]

S3 = all(importlib.util.find_spec(name) for name in ("moto", "s3fs", "werkzeug"))
LIMIT_S = 580
LATE, RANKS = 2, 4


class Store:
    """Where the run lies."""

    def __init__(self, folder: Path) -> None:
        self.url = (folder / "store" / "run").as_uri()

    def close(self) -> None:
        """End it."""


_SERVES = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=True)
server.serve_forever()
"""


class S3Store(Store):
    """moto's server on loopback. It holds all in memory: what it held is gone when it is killed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        for name, value in {
            "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}", "AWS_MAX_ATTEMPTS": "1",
        }.items():  # fmt: skip
            patch.setenv(name, value)
        self.url = "s3://bucket/jobs/run"
        self.start()

    def start(self) -> None:
        import s3fs

        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVES, str(self._port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(self._answers)
        s3fs.S3FileSystem(skip_instance_cache=True).mkdir("bucket")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False

    def kill(self) -> None:
        end(self._process)

    def close(self) -> None:
        self.kill()


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.skipif(not S3, reason="no moto and s3fs"))])
def store(request, tmp_path, monkeypatch) -> Iterator[Store]:
    found = S3Store(monkeypatch) if request.param == "s3" else Store(tmp_path)
    yield found
    found.close()


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return waiting_for_input(RANKS, LATE)


@pytest.fixture
def make(tmp_path, store):
    nodes = []

    def make(number: int, **task) -> Node:
        spool = tmp_path / f"spool{number}"
        fields = {"alone": False, "report": True, "report_timeout_s": 500.0, "gather_timeout_s": 300.0,
                  "node": str(number), "run_dir": str(spool / "run"), "store": store.url, "run_id": "run"}  # fmt: skip
        nodes.append(Node(spool, RunDir(spool / "run"), **{**fields, **task}))
        return nodes[-1].start()

    yield make
    for node in nodes:
        node.close()


def brought(store: Store, tmp_path: Path) -> RunDir:
    """All that the store holds."""
    folder = tmp_path / "brought"
    folder.mkdir()
    Mirror(folder, store.url).pull()
    (folder / NOTES).unlink()
    return RunDir(folder)


@pytest.mark.parametrize("keep", ["all", "suspects"])
def test_two_nodes_without_any_folder_in_common(make, store, texts, tmp_path, keep):
    nodes = [make(0, keep=keep), make(1, keep=keep)]
    for number, node in enumerate(nodes):
        node.announces(range(2 * number, 2 * number + 2), texts)
    with ThreadPoolExecutor(2) as pool:
        words = list(pool.map(lambda node: node.end(limit_s=LIMIT_S), nodes))
    run = brought(store, tmp_path)
    manifest = from_json(RunManifest, run.manifest.read_bytes())
    (window,) = manifest.windows
    assert [(r.rank, r.status) for r in window.records] == [(rank, "ok") for rank in range(RANKS)]
    assert verify(run.path).wrong == []
    assert sorted(path.name for path in run.path.glob("audit*")) == ["audit.node_0.jsonl", "audit.node_1.jsonl"]
    report = (run.report / "report.json").read_text()
    assert from_json(ClusterReport, report).verdict.ranks == [LATE]
    assert "spool" not in report
    assert f"{store.url}/attempt_0/window_000/rank_00000.trace.json.gz" in report
    kept = sorted(int(path.name[5:10]) for path in run.window(0, 0).glob("*.trace.json.gz"))
    assert kept == (list(range(RANKS)) if keep == "all" else [0, 1, LATE])
    until(lambda: not [node for node in nodes if node.spool.path.exists()])  # the other node is done before it has left
    assert any(word.kind == "report" for word in words[0])


def test_a_second_run_there_is_refused(make, store, texts, tmp_path):
    node = make(0, report=False)
    node.announces(range(RANKS), texts)
    node.end(limit_s=LIMIT_S)
    other = Node(tmp_path / "other", RunDir(tmp_path / "other" / "run"), store=store.url, node="0", launch="launch 2",
                 run_dir=str(tmp_path / "other" / "run"))  # fmt: skip
    from rankscope.launcher.node_helper import NodeHelper

    other.helper = NodeHelper(other.spool)
    word = other.helper.claimed(300, 300)
    other.close()
    assert word.kind == "refused"
    assert f"{store.url} holds a finished run" in word.text


def test_a_helper_that_is_killed_while_it_writes_is_followed_by_another(make, store, texts, tmp_path):
    node = make(0, report=False)
    node.helper.watch()
    node.announces(range(RANKS), texts)
    until(lambda: (node.run.path / ".sent.jsonl").exists())  # it has begun
    os.kill(node.helper.pid, signal.SIGKILL)
    node.end(limit_s=LIMIT_S)
    run = brought(store, tmp_path)
    assert verify(run.path).wrong == []
    assert len(list(run.window(0, 0).glob("*.trace.json.gz"))) == RANKS


@pytest.mark.skipif(not S3, reason="a folder cannot be killed")
def test_a_store_that_is_killed_and_loses_all_gets_it_again(tmp_path, monkeypatch, texts):
    store = S3Store(monkeypatch)
    try:
        spool = tmp_path / "spool9"
        node = Node(spool, RunDir(spool / "run"), store=store.url, run_dir=str(spool / "run"), run_id="run", node="9",
                    gather_timeout_s=300.0)  # fmt: skip
        node.start()
        node.announces(range(RANKS), texts)
        until(lambda: node.run.record(0, 0, RANKS - 1).exists())
        store.kill()
        words = node.end(limit_s=LIMIT_S)
        said = " ".join(word.text for word in words)
        assert f"`rankscope gather {spool}`" in said  # nothing is lost, and nothing is believed
        assert spool.exists()
        node.close()
        store.start()
        gathered = gather_later(spool)
        assert gathered.left == ""
        assert not spool.exists()
        run = brought(store, tmp_path)
        assert verify(run.path).wrong == []
        assert len(list(run.window(0, 0).glob("*.trace.json.gz"))) == RANKS
    finally:
        store.close()


@pytest.mark.skipif(not S3, reason="a folder cannot be killed")
def test_a_store_that_comes_and_goes(tmp_path, monkeypatch, texts):
    """A store that stands still for half of the time is a slow one."""
    store = S3Store(monkeypatch)
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.wait(1.0):
            os.kill(store._process.pid, signal.SIGSTOP)
            time.sleep(0.5)
            os.kill(store._process.pid, signal.SIGCONT)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        spool = tmp_path / "spool8"
        node = Node(spool, RunDir(spool / "run"), store=store.url, run_dir=str(spool / "run"), run_id="run", node="8",
                    gather_timeout_s=300.0)  # fmt: skip
        node.start()
        node.announces(range(RANKS), texts)
        node.end(limit_s=LIMIT_S)
        node.close()
        stop.set()
        thread.join()
        run = brought(store, tmp_path)
        assert verify(run.path).wrong == []
    finally:
        stop.set()
        thread.join()
        store.close()
