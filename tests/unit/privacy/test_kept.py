"""A run as a node's helper leaves it: its sums, its signature, its seal, and who did what with it."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.cli import main
from rankscope.config import ToolConfig
from rankscope.errors import ConfigError
from rankscope.privacy.unlock import opened
from rankscope.privacy.verify import Verified, verify
from rankscope.records.manifest import RunManifest
from rankscope.rundir.audit import AUDIT, note_deed
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from support.node import Node

pyrage = pytest.importorskip("pyrage")
ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
DATA = Path(__file__).parents[2] / "data"
SECRET = "Zquonk-of-the-command-line"


def trace_of(rank: int) -> str:
    return gzip.decompress((DATA / f"traces/gloo_ddp_input/rank_{rank}.json.gz").read_bytes()).decode()


def keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Files with a private and a public Ed25519 key."""
    key = ed25519.Ed25519PrivateKey.generate()
    private, public = folder / name, folder / f"{name}.pub"
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return private, public


def leave(folder: Path, **task: object) -> Path:
    """A run of two ranks and a window, as a helper finishes it."""
    run = RunDir(folder / "run")
    node = Node(folder / "spool", run, argv=["rankscope", "run", "train.py", "--token", SECRET], **task)
    with contextlib.closing(node.start()):
        for rank in (0, 1):
            snapshot = node.spool.snapshot(0, 0, rank)
            snapshot.write_bytes(b"a pickle that nobody reads here")
            node.records(rank, trace_of(rank), snapshot=snapshot.name)
            node.lives(rank)
        node.end()
    return run.path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A signed run, its public key, and that of somebody else."""
    top = tmp_path_factory.mktemp("signed")
    private, public = keys(top, "mine")
    _, others = keys(top, "theirs")
    return leave(top, signing_key=str(private)), public, others


@pytest.fixture
def run(plain: tuple[Path, Path, Path], tmp_path: Path) -> Path:
    return shutil.copytree(plain[0], tmp_path / "run")


TRACE = "attempt_0/window_000/rank_00000.trace.json.gz"
OTHER = "attempt_0/window_000/rank_00001.trace.json.gz"


def test_a_run_that_nobody_touched_is_whole(plain: tuple[Path, Path, Path], run: Path) -> None:
    found = verify(run, key=plain[1])
    assert found.wrong == []
    manifest = read_record(RunManifest, run / "run.json")
    later = {"run.json", "run.json.sig", AUDIT}
    there = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert set(manifest.files) == there - later  # every file
    assert found.files == len(manifest.files) >= 8
    assert found.signed_by == plain[1].read_text().strip()
    (run / "report").mkdir()
    (run / "report" / "report.html").touch()  # made later
    assert verify(run, key=plain[1]).wrong == []


def swap(run: Path) -> None:
    one, two = run / TRACE, run / OTHER
    a, b = one.read_bytes(), two.read_bytes()
    one.write_bytes(b)
    two.write_bytes(a)


TAMPERED: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "changed": (lambda run: (run / TRACE).write_bytes((run / TRACE).read_bytes()[:-1] + b"x"), [f"{TRACE}: changed"]),
    "truncated": (lambda run: os.truncate(run / TRACE, 1000), [f"{TRACE}: truncated: 1000 of"]),
    "emptied": (lambda run: os.truncate(run / TRACE, 0), [f"{TRACE}: truncated: 0 of"]),
    "lost": (lambda run: (run / TRACE).unlink(), [f"{TRACE}: lost"]),
    "added": (lambda run: (run / "attempt_0/window_000/rank_00002.json").write_text("{}"), ["rank_00002.json: added"]),
    "a link": (lambda run: ((run / TRACE).unlink(), (run / TRACE).symlink_to("/dev/null")), ["no file"]),
    "swapped": (swap, [f"{TRACE}: swapped: it holds what {OTHER} held", f"{OTHER}: swapped"]),
    "replayed": (
        lambda run: (run / "nodes/launch.json").write_text(json.dumps({"run_id": "run_0007"})),
        ["nodes/launch.json: replayed: it is of another run (run_0007)"],
    ),
    "the manifest": (
        lambda run: (run / "run.json").write_text(
            (run / "run.json").read_text().replace('"exit_code": 0', '"exit_code": 1')
        ),
        ["run.json: changed since it was signed"],
    ),
    "the manifest and the signature's sum": (
        lambda run: (run / "run.json.sig").write_text(
            (run / "run.json.sig").read_text().replace('"sha256": "', '"sha256": "0')
        ),
        ["run.json.sig: changed"],
    ),
    "no signature": (lambda run: (run / "run.json.sig").unlink(), ["run.json: it is not signed"]),
    "no such signature": (lambda run: (run / "run.json.sig").write_text("{}"), ["run.json.sig: no signature"]),
    "the manifest is none": (lambda run: (run / "run.json").write_text("[]"), ["run.json: changed or damaged"]),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_what_was_done_to_a_run_is_named(how: str, run: Path, plain: tuple[Path, Path, Path]) -> None:
    tamper, said = TAMPERED[how]
    tamper(run)
    found = verify(run, key=plain[1])
    assert len(found.wrong) == len(said), found.wrong
    for wrong, words in zip(sorted(found.wrong), sorted(said), strict=True):
        assert words in wrong


def test_the_manifest_and_signature_of_another_run_are_not_those_of_this(
    run: Path, plain: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    text = (run / "run.json").read_text()
    (run / "run.json").write_text(text.replace('"attempts": 1', '"attempts": 2'))
    assert any("replayed: it is of run" in wrong for wrong in verify(run, key=plain[1]).wrong)
    (run / "run.json").write_text(text)
    assert [w.partition(":")[0] for w in verify(run, key=plain[2]).wrong] == ["run.json.sig"]
    assert "another key" in verify(run, key=plain[2]).wrong[0]


def test_a_run_of_before_says_that_nothing_is_known(tmp_path: Path) -> None:
    shutil.copytree(DATA / "runs/ddp_input", tmp_path / "run")
    found = verify(tmp_path / "run")
    assert found == Verified(files=0, wrong=[], remarks=found.remarks)
    assert any("no sums of files" in remark for remark in found.remarks)


def test_verify_as_a_verb(run: Path, plain: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(run), "--key", str(plain[1])]) == 0
    assert "are as they were, signed" in capsys.readouterr().out
    os.truncate(run / TRACE, 5)
    assert main(["verify", str(run)]) == 4
    assert capsys.readouterr().out.startswith(f"{TRACE}: truncated: 5 of")


# ------------------------------------------------------------ encryption


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An encrypted and signed run, and the file with its key."""
    top = tmp_path_factory.mktemp("sealed")
    identity = pyrage.x25519.Identity.generate()
    (top / "key.txt").write_text(f"# created\n{identity}\n")
    private, _ = keys(top, "mine")
    return leave(top, encrypt=[str(identity.to_public())], signing_key=str(private)), top / "key.txt"


def test_nothing_on_the_shared_disk_can_be_read(sealed: tuple[Path, Path]) -> None:
    clear = []
    for path in sealed[0].rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if not data.startswith(b"age-encryption.org/v1"):
                clear.append(path.relative_to(sealed[0]).as_posix())
            text = data + base64.b64encode(data)
            assert all(
                word not in text for word in (b"aten::", b"traceEvents", b"pickle", b"train.py", SECRET.encode())
            )
    assert {Path(name).name.replace(os.uname().nodename, "HOST") for name in clear} == {
        AUDIT,
        "HOST.claim.json",
        "launch.json",
        "run.json.sig",
    }


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


def test_without_the_key_it_says_so_and_no_report_lies_beside_it(
    sealed: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, key = sealed
    assert main(["analyze", str(run)]) == 2
    assert "is encrypted (age); give the key" in capsys.readouterr().err
    other = tmp_path / "other.txt"
    other.write_text(str(pyrage.x25519.Identity.generate()))
    assert main(["analyze", str(run), "--identity", str(other)]) == 4
    assert "cannot be opened with this key" in capsys.readouterr().err
    other.write_text("no key")
    assert main(["analyze", str(run), "--identity", str(other)]) == 2
    assert main(["analyze", str(run), "--identity", str(key), "--output", str(run / "report")]) == 2
    assert main(["merge", str(run), "--identity", str(key)]) == 2
    assert not (run / "report").exists()


@pytest.mark.parametrize(
    "store", [{"encrypt": ["age1nobody"]}, {"encrypt": ["missing.txt"]}, {"signing_key": "missing"}]
)
def test_a_recipient_that_is_none_is_told_before_the_job_starts(store: dict[str, object], tmp_path: Path) -> None:
    from rankscope.config import StoreConfig
    from rankscope.launcher.job import begin
    from rankscope.launcher.run_plan import RunPlan

    config = ToolConfig(store=StoreConfig(**store))
    plan = RunPlan(run_id="r", run_dir=tmp_path / "run", node=None, launch="launch 1", alone=True)
    with pytest.raises(ConfigError, match="store\\."):
        begin(plan, config, argv=[], plain={})
    assert list(tmp_path.iterdir()) == []


def test_without_the_library_nothing_leaves_the_own_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# ------------------------------------------------------------ audit


def test_who_did_what_is_in_the_run_directory(run: Path, tmp_path: Path) -> None:
    deeds = [json.loads(line) for line in (run / AUDIT).read_text().splitlines()]
    assert [(deed["deed"], deed["command"]) for deed in deeds] == [
        ("recorded", ["rankscope", "run", "train.py", "--token", "***"])
    ]
    assert set(deeds[0]) == {"time", "deed", "user", "host", "command"}
    assert main(["redact", str(run), "-o", str(tmp_path / "out" / "copy"), "--no-report"]) == 0
    assert main(["analyze", str(run), "--no-hta", "--output", str(tmp_path / "report")]) == 0
    deeds = [json.loads(line) for line in (run / AUDIT).read_text().splitlines()]
    assert [deed["deed"] for deed in deeds] == ["recorded", "redacted", "exported"]
    assert deeds[1]["level"] == "public"
    assert verify(run).wrong == []  # the log is added to, and no part of what was signed


def test_a_deed_that_cannot_be_noted_stops_nobody(run: Path, tmp_path: Path) -> None:
    (run / AUDIT).unlink()
    (run / AUDIT).symlink_to(tmp_path / "elsewhere")
    note_deed(RunDir(run), "redacted", ["rankscope"])
    assert not (tmp_path / "elsewhere").exists()
    (run / AUDIT).unlink()
    os.mkfifo(run / AUDIT)
    note_deed(RunDir(run), "redacted", ["rankscope"])  # does not wait for a reader
    note_deed(RunDir(tmp_path / "no run"), "redacted", ["rankscope"])
    assert not (tmp_path / "no run").exists()
