"""An encrypted run: unreadable without the key, and readable with it by every verb."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.cli import main
from rankscope.config import ToolConfig
from rankscope.errors import ConfigError
from rankscope.node.gathering.placing import Placing
from rankscope.privacy.unlock import opened
from rankscope.records.codec import to_json
from rankscope.records.manifest import RunManifest
from rankscope.records.running.hang import NodeAnswers, RankState
from rankscope.records.running.live import NodeLive, RankLive
from rankscope.records.running.node_task import JobEnd
from rankscope.rundir.audit import AUDIT
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from support.kept import SECRET, TRACE, keys, leave, trace_of
from support.node import Node

pyrage = pytest.importorskip("pyrage")
pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
pytestmark = pytest.mark.process
OPEN = {AUDIT, "claim.json", "launch.json", "run.json.sig"}
"""What of an encrypted run lies open, by the end of its name."""


def key_in(folder: Path, name: str = "key.txt") -> tuple[Path, str]:
    """A file with a key of age, and its recipient."""
    identity = pyrage.x25519.Identity.generate()
    (folder / name).write_text(f"# created\n{identity}\n")
    return folder / name, str(identity.to_public())


def clear(run: Path) -> set[str]:
    """Files that anybody can read, by the end of their names; of what was recorded nothing is in any."""
    found = set()
    for path in run.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if not data.startswith(b"age-encryption.org/v1"):
                found.add(next((name for name in OPEN if path.name.endswith(name)), path.name))
            text = data + base64.b64encode(data)
            words = (b"aten::", b"traceEvents", b"pickle", b"train.py", SECRET.encode(), b"fetch_a_batch")
            assert not any(word in text for word in words), path
    return found


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An encrypted and signed run, and the file with its key."""
    top = tmp_path_factory.mktemp("sealed")
    key, recipient = key_in(top)
    private, _ = keys(top, "mine")
    return leave(top, encrypt=[recipient], signing_key=str(private)), key


def test_nothing_on_the_shared_disk_can_be_read(sealed: tuple[Path, Path]) -> None:
    assert clear(sealed[0]) == OPEN


def test_with_the_key_it_is_the_same_run(
    sealed: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, key = sealed
    before = sorted(path.name for path in run.rglob("*"))
    assert main(["analyze", str(run), "--identity", str(key), "--no-hta", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"]["ranks"], report["verdict"]["cause"]) == ([1], "input_stall")
    assert str(run / TRACE) in {
        source["path"] for source in report["sources"]
    }  # where it lies, not where it was opened
    assert sorted(path.name for path in run.rglob("*")) == before
    assert main(["verify", str(run), "--identity", str(key)]) == 0
    assert main(["redact", str(run), "--identity", str(key), "-o", str(tmp_path / "out" / "copy"), "--no-report"]) == 0
    with opened(run, key) as folder:
        assert folder.stat().st_mode & 0o077 == 0 or folder.parent.stat().st_mode & 0o077 == 0
        assert gzip.decompress((folder / TRACE).read_bytes()).decode() == trace_of(0)
    assert not folder.exists()


READING = {
    "analyze": ["RUN"],
    "report": ["RUN"],
    "merge": ["RUN", "--output", "OUT/all.json.gz"],
    "redact": ["RUN", "-o", "OUT/copy"],
    "verify": ["RUN"],
    "diff": ["RUN", "RUN"],
    "check": ["RUN", "--fail-if", "step > 9999 ms"],
    "baseline": ["set", "gpt", "RUN", "--store", "OUT/store"],
    "reduce": ["RUN", "--output", "OUT/reduced"],
    "cluster-report": ["OUT/reduced", "--run", "RUN"],
    "export": ["RUN", "--to", "openmetrics", "--output", "OUT/metrics.txt"],
    "runs": ["show", "RUN"],
    "status": ["RUN"],
    "top": ["RUN"],
    "why-stuck": ["RUN"],
}
"""Each verb that reads a run, in an order in which the later ones find what they need."""


def words_of(verb: str, run: Path, out: Path) -> list[str]:
    return [verb, *(word.replace("RUN", str(run)).replace("OUT", str(out)) for word in READING[verb])]


def test_without_the_key_each_verb_says_which_option_takes_it(
    sealed: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = sealed
    for verb in READING:
        assert main(words_of(verb, run, tmp_path)) == 2, verb
        assert "is encrypted (age); give the key of a recipient with --identity FILE" in capsys.readouterr().err, verb
    assert main(["view", str(run), "--no-browser"]) == 2
    assert "--identity KEY --output FOLDER" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_with_the_key_each_verb_reads_it_and_leaves_no_trace_beside_it(
    sealed: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, key = sealed
    before = set(run.rglob("*"))
    named = {"report", "merge", "check", "baseline", "reduce", "cluster-report", "export", "runs"}
    for verb in [verb for verb in READING if verb in named]:
        assert main([*words_of(verb, run, tmp_path), "--identity", str(key)]) == 0, verb
    out = capsys.readouterr().out
    assert out.count("input_stall") + out.count("Rank 1") + out.count("rank 1") >= 2
    assert "windows     1, with 2 of 2 traces whole" in out  # of runs show
    assert main(["diff", "baseline:gpt", str(run), "--store", str(tmp_path / "store"), "--identity", str(key)]) == 0
    assert set(run.rglob("*")) == before
    deeds = [json.loads(line) for line in (run / AUDIT).read_text().splitlines()]
    assert all(len(deed["command"]) <= 2 and "to" not in deed for deed in deeds)  # the verb is all that is told


def test_output_within_an_encrypted_run_is_refused(
    sealed: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, key = sealed
    other, _ = key_in(tmp_path, "other.txt")
    assert main(["analyze", str(run), "--identity", str(other)]) == 4
    assert "cannot be opened with this key" in capsys.readouterr().err
    other.write_text("no key")
    assert main(["analyze", str(run), "--identity", str(other)]) == 2
    for words in (
        ["analyze", run, "--output", run / "report"],
        ["report", run, "--output", run / "report"],
        ["merge", run],
        ["merge", run, "--output", run / "report" / "all.json.gz"],
        ["reduce", run, "--output", run / "reduced"],
        ["export", run, "--to", "openmetrics", "--output", run / "metrics.txt"],
        ["baseline", "set", "gpt", run, "--store", run / "store"],
        ["diff", run, run, "--output", run / "diff.html"],
        ["redact", run, "-o", run / "copy"],
    ):
        assert main([*map(str, words), "--identity", str(key)]) == 2, words
        assert "encrypted" in capsys.readouterr().err
    assert not (run / "report").exists()


def test_a_plain_file_beside_an_encrypted_one_is_not_read_in_its_place(tmp_path: Path) -> None:
    key, recipient = key_in(tmp_path)
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    Placing(run, [recipient]).record(run.path / "a.txt", "the true one")
    (run.path / "a.txt").write_text("put there")
    with opened(run.path, key) as folder:
        assert [path.read_text() for path in folder.iterdir()] == ["the true one"]


# ------------------------------------------------------------ while it runs


@pytest.fixture
def running(tmp_path: Path) -> tuple[RunDir, Path]:
    """A job that trains and is encrypted, as its helper shows it, and the key."""
    key, recipient = key_in(tmp_path)
    run = RunDir(tmp_path / "run")
    for folder in (run.nodes, run.live_folder, run.stuck_folder):
        folder.mkdir(parents=True)
    run.node_claim("a").write_text("{}")
    placing = Placing(run, [recipient])
    ranks = [RankLive(rank=rank, steps=320, step_ms=250.0, own_ms=1.0, seconds=80.0) for rank in (0, 1)]
    live = NodeLive(node="a", host="a", attempt=0, world_size=2, time_ns=time.time_ns(), ranks=ranks)
    placing.passing(run.live("a"), to_json(live))
    states = [RankState(rank=rank, pid=1, state="S", steps=320, idle_s=90.0) for rank in (0, 1)]
    answers = NodeAnswers(node="a", attempt=0, world_size=2, time_ns=time.time_ns(), after_s=60, ranks=states)
    placing.passing(run.stuck("a"), to_json(answers))
    placing.passing(run.stuck("a"), to_json(answers))  # renewed
    return run, key


def test_how_an_encrypted_job_is_doing_is_shown_to_who_has_the_key(
    running: tuple[RunDir, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, key = running
    assert clear(run.path) == {"claim.json"}
    for verb, shown in (("status", "250 ms"), ("top", "250"), ("why-stuck", "Stuck")):
        assert main([verb, str(run.path)]) == 2
        assert "--identity" in capsys.readouterr().err
        assert main([verb, str(run.path), "--identity", str(key)]) == 0
        assert shown in capsys.readouterr().out
    assert main(["capture", str(run.path)]) == 2
    assert not run.request_folder.exists()  # nobody could have seen the answers


# ------------------------------------------------------------ several nodes


def test_the_nodes_of_an_encrypted_run_are_put_together_by_who_has_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, recipient = key_in(tmp_path)
    private, public = keys(tmp_path, "mine")
    run = RunDir(tmp_path / "run")
    task = {"run_id": "job", "alone": False, "encrypt": [recipient], "gather_timeout_s": 300.0}
    nodes = [Node(tmp_path / f"spool_{rank}", run, node=f"{rank}", signing_key=str(private), **task) for rank in (0, 1)]
    with contextlib.ExitStack() as stack:
        for rank, node in enumerate(nodes):
            stack.enter_context(contextlib.closing(node.start()))
            node.records(rank, trace_of(rank))
            node.lives(rank)
        for node in nodes:
            node.helper.finish(JobEnd(exit_code=0))
        for node in nodes:
            node.hear()
    assert clear(run.path) == OPEN
    assert len(list(run.nodes.glob("*.result.json.age"))) == 2
    with opened(run.path, key) as folder:
        manifest = read_record(RunManifest, RunDir(folder).manifest)
    (window,) = manifest.windows
    assert [(record.rank, record.status) for record in window.records] == [(0, "ok"), (1, "ok")]
    assert manifest.notes == []
    assert main(["analyze", str(run.path), "--identity", str(key), "--no-hta", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"]["ranks"], report["verdict"]["cause"]) == ([1], "input_stall")
    verify = ["verify", str(run.path), "--identity", str(key), "--key", str(public)]
    assert main(verify) == 0
    assert "are as they were, signed" in capsys.readouterr().out
    other = run.path / f"{TRACE}.age"
    other.write_bytes((run.path / f"{TRACE.replace('00000', '00001')}.age").read_bytes())
    assert main(verify) == 4
    assert "replayed: it holds what" in capsys.readouterr().out


# ------------------------------------------------------------ what cannot be encrypted


@pytest.mark.parametrize(
    "store", [{"encrypt": ["age1nobody"]}, {"encrypt": ["missing.txt"]}, {"signing_key": "missing"}]
)
def test_an_invalid_recipient_is_reported_before_the_job_starts(store: dict[str, object], tmp_path: Path) -> None:
    from rankscope.config import StoreConfig
    from rankscope.launcher.job import begin
    from rankscope.launcher.run_plan import RunPlan

    config = ToolConfig(store=StoreConfig(**store))
    plan = RunPlan(run_id="r", run_dir=tmp_path / "run", node=None, launch="launch 1", alone=True)
    with pytest.raises(ConfigError, match="store\\."):
        begin(plan, config, argv=[], plain={})
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_nothing_leaves_the_own_disk(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pyrage.py").write_text("raise ImportError('hidden')")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from rankscope.rundir.sealing import recipients_of\n"
        "from rankscope.errors import ConfigError\n"
        "try: recipients_of(['age1xyz'])\n"
        "except ConfigError as error: print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, str(hidden)], capture_output=True, text=True, check=True
    ).stdout
    assert "encryption needs the library pyrage" in said
    assert "rankscope[encrypt]" in said
    # a helper that cannot seal places nothing
    run = RunDir(tmp_path / "run")
    node = Node(tmp_path / "spool", run, encrypt=["age1nobody"])
    with contextlib.closing(node.start()):
        node.records(0, trace_of(0))
        node.lives(0)
        words = node.end()
    assert [p.name for p in run.path.rglob("*") if p.is_file() and p.suffix != ".json"] == []
    assert not any(run.path.glob("attempt_*"))
    assert any("was to be encrypted" in word.text for word in words)
    assert node.spool.trace(0, 0, 0).exists()
