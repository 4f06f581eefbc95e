"""Two folders as disks of two nodes, combined over loopback, through a store, and from folders."""

from __future__ import annotations

import errno
import json
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope import cli
from rankscope.collecting import receive, wire
from rankscope.collecting.collect import Collecting, collect
from rankscope.collecting.parts import is_part_file, part_of
from rankscope.collecting.receive import Receiver
from rankscope.collecting.send import send_part
from rankscope.config import ToolConfig, to_agent_spec
from rankscope.errors import ConfigError, RunDirError
from rankscope.node.manifest import NodeResult, build_manifest
from rankscope.records.codec import from_json, to_json
from rankscope.records.manifest import FileSum, RunManifest
from rankscope.records.rank import RankRecord
from rankscope.rundir.files import sha256_of
from rankscope.rundir.layout import RunDir

KEY = b"0123456789abcdef"
NODES = (("node-a", 0), ("node-b", 1))


def make_part(path: Path, node: str, rank: int, *, launch: str = "rendezvous 7", trace: bytes = b"trace") -> RunDir:
    """What the helper of a node leaves where no other node sees its run directory."""
    run = RunDir(path)
    run.nodes.mkdir(parents=True)
    run.window(0, 0).mkdir(parents=True)
    claim = {"run_id": "7", "launch": launch, "host": node, "pid": 100 + rank, "spool": f"/tmp/{node}"}
    for file in (run.launch, run.node_claim(node)):
        file.write_text(json.dumps(claim))
    spec = to_agent_spec(ToolConfig(), run_id="7", spool=Path(f"/tmp/{node}"))
    run.agent_spec.write_text(to_json(spec))
    known = {"rank": rank, "local_rank": 0, "world_size": 2, "host": node, "pid": 200 + rank, "attempt": 0}
    life = RankRecord(**known, steps_counted=9)
    record = RankRecord(**known, window=0, first_step=3, last_step=5, trace=run.trace(0, 0, rank).name)
    run.trace(0, 0, rank).write_bytes(trace)
    run.record(0, 0, rank).write_text(to_json(record))
    (run.window(0, 0) / f"rank_{rank:05d}.parquet").write_bytes(b"a cache")
    files = {
        file.relative_to(path).as_posix(): FileSum(sha256=sha256_of(file), bytes=file.stat().st_size)
        for file in (run.trace(0, 0, rank), run.record(0, 0, rank))
    }
    result = NodeResult(
        node=node, host=node, lives=[life], records=[record], exit_code=0, files=files, notes=[f"{node}: a note"]
    )
    run.node_result(node).write_text(to_json(result))
    manifest = build_manifest(
        [result], run_id="7", argv=["rankscope", "run"], config={}, schedule=spec.schedule, versions={}
    )
    manifest.files = files
    run.manifest.write_text(to_json(manifest))
    return run


@pytest.fixture
def parts(tmp_path: Path) -> list[RunDir]:
    return [make_part(tmp_path / node / "run", node, rank) for node, rank in NODES]


def manifest_of(run: RunDir) -> RunManifest:
    return from_json(RunManifest, run.manifest.read_bytes())


def must_be_whole(run: RunDir) -> None:
    """Both ranks are there, nothing is twice, and run.json knows each file as it is."""
    manifest = manifest_of(run)
    (window,) = manifest.windows
    assert [(record.rank, record.host, record.status) for record in window.records] == [
        (0, "node-a", "ok"), (1, "node-b", "ok"),
    ]  # fmt: skip
    assert manifest.hosts == ["node-a", "node-b"]
    assert sorted(note for note in manifest.notes if "a note" in note) == ["node-a: a note", "node-b: a note"]
    assert not any("no word from this rank" in (record.reason or "") for record in window.records)
    names = {name for name in part_of(run.path).files if name != "run.json"}
    assert set(manifest.files) == names
    for name, known in manifest.files.items():
        assert (known.bytes, known.sha256) == ((run.path / name).stat().st_size, sha256_of(run.path / name))
    assert {"attempt_0/window_000/rank_00001.trace.json.gz", "nodes/node-b.result.json"} <= names
    assert not [*run.path.glob(".*")]


def test_each_part_alone_lacks_the_other_rank(parts: list[RunDir]) -> None:
    statuses = [[record.status for record in manifest_of(part).windows[0].records] for part in parts]
    assert statuses == [["ok", "missing"], ["missing", "ok"]]


@pytest.mark.parametrize("into", ["first", "second", "new"])
def test_folders_come_together_in_any_of_them_or_in_a_new_one(into: str, parts: list[RunDir], tmp_path: Path) -> None:
    first, second = parts
    target, others = {"first": (first, [second]), "second": (second, [first]), "new": (RunDir(tmp_path / "n"), parts)}[
        into
    ]
    for _ in range(2):  # the second time there is nothing to do, and nothing changes
        assert cli.main(["collect", str(target.path), "--from", *(str(part.path) for part in others)]) == 0
        must_be_whole(target)


def test_a_store_has_the_parts_until_they_are_collected(parts: list[RunDir], tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    url = (tmp_path / "store" / "job7").as_uri()
    with_none = cli.main(["collect", str(tmp_path / "run"), "--from", url])
    for part in parts:
        assert cli.main(["collect", str(part.path), "--to", url]) == 0
    other = make_part(tmp_path / "other", "node-b", 1, launch="rendezvous 8")
    assert cli.main(["collect", str(other.path), "--to", url]) == RunDirError.exit_code
    assert cli.main(["collect", str(tmp_path / "run"), "--from", url]) == 0
    must_be_whole(RunDir(tmp_path / "run"))
    assert with_none == RunDirError.exit_code


class Listening:
    """A machine that collects, in a thread."""

    def __init__(self, into: RunDir, nodes: int) -> None:
        self.said: list[str] = []
        self.collecting = Collecting(into, part_of(into.path).nodes if into.ended else [])
        self.receiver = Receiver(self.collecting, ("127.0.0.1", 0), KEY, nodes, self.said.append)
        self.whole: list[bool] = []
        self._thread = threading.Thread(target=lambda: self.whole.append(self.receiver.run(60)), daemon=True)
        self._thread.start()

    @property
    def at(self) -> tuple[str, int]:
        return "127.0.0.1", self.receiver.port

    def end(self) -> bool:
        self._thread.join(120)
        self.collecting.finish()
        return self.whole == [True]


@pytest.mark.parametrize("into", ["first", "new"])
def test_parts_come_over_the_network(into: str, parts: list[RunDir], tmp_path: Path) -> None:
    target = parts[0] if into == "first" else RunDir(tmp_path / "new")
    listening = Listening(target, 2)
    for part in parts:
        if part is not target:
            assert send_part(part.path, listening.at, KEY) > 4
    assert listening.end()
    must_be_whole(target)


def test_who_has_another_key_sends_nothing_and_gets_nothing(parts: list[RunDir]) -> None:
    listening = Listening(parts[0], 2)
    with pytest.raises(RunDirError, match="the keys differ"):
        send_part(parts[1].path, listening.at, b"another key, not theirs")
    assert not parts[0].trace(0, 0, 1).exists()
    send_part(parts[1].path, listening.at, KEY)
    assert listening.end()


def test_a_receiver_that_does_not_know_the_key_is_given_no_file(parts: list[RunDir]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        got: list[bytes] = []

        def pretend() -> None:
            connection, _ = server.accept()
            with connection:
                wire.send(connection, rankscope=wire.VERSION, nonce="n")
                said = wire.receive(connection)
                wire.send(connection, lacks=sorted(said["files"]), proof="00")
                got.append(connection.recv(1))

        thread = threading.Thread(target=pretend, daemon=True)
        thread.start()
        with pytest.raises(RunDirError, match="nothing was sent"):
            send_part(parts[0].path, ("127.0.0.1", server.getsockname()[1]), KEY)
        thread.join(60)
    assert got == [b""]


def test_a_connection_that_breaks_is_gone_on_with(
    parts: list[RunDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    take = receive._take

    def breaks(connection: socket.socket, target: Path, known: FileSum) -> None:
        if len(taken) == 3:
            taken.append("broken")
            raise ConnectionError("a cable was pulled")
        take(connection, target, known)
        taken.append(target.name)

    monkeypatch.setattr(receive, "_take", breaks)
    monkeypatch.setattr("rankscope.collecting.send._PAUSE_S", 0.0)
    listening = Listening(parts[0], 2)
    send_part(parts[1].path, listening.at, KEY)
    assert listening.end()
    assert "broken" in taken
    assert len(taken) == len(set(taken))  # no file came twice
    must_be_whole(parts[0])


def test_parts_on_their_way_count_as_if_they_were_there(parts: list[RunDir], monkeypatch: pytest.MonkeyPatch) -> None:
    listening = Listening(parts[0], 2)
    free = 3 << 30
    monkeypatch.setattr(receive.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    listening.receiver._coming["another"] = 2 << 30
    with pytest.raises(RunDirError, match=r"3\.2 GB free, of which 1 stays free and 2\.1 are for parts"):
        send_part(parts[1].path, listening.at, KEY)
    del listening.receiver._coming["another"]
    send_part(parts[1].path, listening.at, KEY)
    assert listening.end()
    assert listening.receiver._coming == {}


def test_a_disk_that_fills_up_is_not_kept_full(parts: list[RunDir], monkeypatch: pytest.MonkeyPatch) -> None:
    take, taken = receive._take, []

    def fills(connection: socket.socket, target: Path, known: FileSum) -> None:
        if len(taken) == 3:
            taken.append("full")
            raise OSError(errno.ENOSPC, "No space left on device")
        take(connection, target, known)
        taken.append(target.name)

    monkeypatch.setattr(receive, "_take", fills)
    listening = Listening(parts[0], 2)
    with pytest.raises(RunDirError, match="No space left"):
        send_part(parts[1].path, listening.at, KEY)
    assert not parts[0].arriving("node-b").exists()
    send_part(parts[1].path, listening.at, KEY)
    assert listening.end()
    must_be_whole(parts[0])


def test_a_node_that_never_connects_is_reported(parts: list[RunDir], capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["collect", str(parts[0].path), "--listen", "127.0.0.1:0", "--nodes", "2", "--wait", "0.1"])
    said = capsys.readouterr().err
    assert code == RunDirError.exit_code
    assert "1 of 2 nodes sent nothing" in said
    assert "RANKSCOPE_COLLECT_KEY=" in said
    assert [record.status for record in manifest_of(parts[0]).windows[0].records] == ["ok", "missing"]


def test_what_is_no_part_of_this_job_changes_nothing(parts: list[RunDir], tmp_path: Path) -> None:
    before = part_of(parts[0].path)
    other_job = make_part(tmp_path / "x", "node-x", 1, launch="rendezvous 8")
    same_name = make_part(tmp_path / "y", "node-a", 1)
    same_name.node_claim("node-a").write_text(json.dumps({"launch": "rendezvous 7", "host": "node-a", "pid": 7}))
    same_file = make_part(tmp_path / "z", "node-z", 0, trace=b"another")
    for part, why in ((other_job, "another job"), (same_name, "call themselves node-a"), (same_file, "overwritten")):
        with pytest.raises(RunDirError, match=why):
            collect([part.path], parts[0].path)
    after = part_of(parts[0].path)
    assert {name: after.files[name] for name in before.files} == before.files
    with pytest.raises(RunDirError, match=r"has no run\.json"):
        collect([tmp_path / "nothing"], parts[0].path)


def test_a_result_with_more_content_replaces_the_earlier_one(parts: list[RunDir]) -> None:
    collect([parts[1].path], parts[0].path)
    result = from_json(NodeResult, parts[1].node_result("node-b").read_bytes())
    result.notes.append("node-b: gathered later")
    parts[1].node_result("node-b").write_text(to_json(result))
    collect([parts[1].path], parts[0].path)
    assert "node-b: gathered later" in manifest_of(parts[0]).notes
    must_be_whole(parts[0])


def test_names_from_elsewhere_stay_in_the_run_directory() -> None:
    for name in ("nodes/a.claim.json", "attempt_0/window_000/columns/a.columns", "run.json.age", "stuck/a.json"):
        assert is_part_file(name)
    for name in ("../run.json", "nodes/../../x", "/etc/passwd", "report/report.html", "nodes/.hidden", "attempt_0/../x",
                 "attempt_0/window_000/rank_00000.parquet", "nodes/a\n"):  # fmt: skip
        assert not is_part_file(name)


def test_invalid_arguments_are_refused(
    parts: list[RunDir], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(parts[0].path)
    for words in (["--listen", "29511"], ["--listen", "host", "--nodes", "2"], ["--to", "node-0"], []):
        assert cli.main(["collect", run, *words]) == ConfigError.exit_code
    monkeypatch.setenv(wire.KEY, "short")
    assert cli.main(["collect", run, "--to", "node-0:1"]) == ConfigError.exit_code
    assert "openssl rand" in capsys.readouterr().err
    assert wire.address_in("[::1]:29511") == ("::1", 29511)


def test_no_process_listens(parts: list[RunDir], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.collecting.send._PAUSE_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RunDirError, match="does `rankscope collect --listen` run there"):
        send_part(parts[0].path, ("127.0.0.1", port), KEY, wait_s=0.0)
