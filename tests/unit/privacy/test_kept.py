"""A run as a node helper finishes it: checksums, signature, audit log."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.cli import main
from rankscope.privacy.verify import Verified, verify
from rankscope.records.manifest import RunManifest
from rankscope.rundir.audit import AUDIT, append_action
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from support.kept import DATA, OTHER, TRACE, keys, leave
from support.node import Node

pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
pytestmark = pytest.mark.process
RECORD = "attempt_0/window_000/rank_00000.json"


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


def test_an_unchanged_run_is_verified(plain: tuple[Path, Path, Path], run: Path) -> None:
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


def of_another_window(run: Path) -> None:
    told = json.loads((run / RECORD).read_text())
    (run / RECORD).write_text(json.dumps(told | {"window": 3}))


def says(**about: object) -> Callable[[Path], object]:
    """A trace whose agent said so."""
    text = json.dumps({"schemaVersion": 1, "rankscope": about, "traceEvents": []})
    return lambda run: (run / TRACE).write_bytes(gzip.compress(text.encode()))


def of_the_run_before(run: Path) -> None:
    """Its trace of a later window is put where this run has one."""
    before = run.parent / "run_before" / TRACE.replace("window_000", "window_004")
    before.parent.mkdir(parents=True)
    before.write_bytes(b"the same steps, recorded when all was well")
    shutil.copyfile(before, run / TRACE)


TAMPERED: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "changed": (lambda run: (run / TRACE).write_bytes((run / TRACE).read_bytes()[:-1] + b"x"), [f"{TRACE}: changed"]),
    "truncated": (lambda run: os.truncate(run / TRACE, 1000), [f"{TRACE}: truncated: 1000 of"]),
    "emptied": (lambda run: os.truncate(run / TRACE, 0), [f"{TRACE}: truncated: 0 of"]),
    "lost": (lambda run: (run / TRACE).unlink(), [f"{TRACE}: lost"]),
    "added": (lambda run: (run / "attempt_0/window_000/rank_00002.json").write_text("{}"), ["rank_00002.json: added"]),
    "a link": (lambda run: ((run / TRACE).unlink(), (run / TRACE).symlink_to("/dev/null")), ["no file"]),
    "swapped": (swap, [f"{TRACE}: swapped: it holds what {OTHER} held", f"{OTHER}: swapped"]),
    "a copy of another": (
        lambda run: shutil.copyfile(run / OTHER, run / TRACE),
        [f"{TRACE}: replayed: it holds what {OTHER} holds"],
    ),
    "of another window": (of_another_window, [f"{RECORD}: replayed: it says that it is of window 3"]),
    "of another attempt": (
        says(run_id="test", attempt=1, window=0, rank=0),
        [f"{TRACE}: replayed: it says that it is of attempt 1"],
    ),
    "of another job": (
        says(run_id="yesterday", attempt=0, window=0, rank=0),
        [f"{TRACE}: replayed: it is of another run (yesterday)"],
    ),
    "of the run before": (
        of_the_run_before,
        [f"{TRACE}: replayed: it holds what run_before/{TRACE.replace('window_000', 'window_004')} holds"],
    ),
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


def test_an_older_run_without_checksums_is_reported(tmp_path: Path) -> None:
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


def test_an_audit_log_that_cannot_be_written_stops_no_command(run: Path, tmp_path: Path) -> None:
    (run / AUDIT).unlink()
    (run / AUDIT).symlink_to(tmp_path / "elsewhere")
    append_action(RunDir(run), "redacted", ["rankscope"])
    assert not (tmp_path / "elsewhere").exists()
    (run / AUDIT).unlink()
    os.mkfifo(run / AUDIT)
    append_action(RunDir(run), "redacted", ["rankscope"])  # does not wait for a reader
    append_action(RunDir(tmp_path / "no run"), "redacted", ["rankscope"])
    assert not (tmp_path / "no run").exists()


def test_a_node_whose_store_adds_to_no_file_has_a_log_of_its_own(run: Path) -> None:
    before = verify(run).remarks
    append_action(RunDir(run), "recorded", ["rankscope", "run"], by="1")
    (line,) = (run / "audit.1.jsonl").read_text().splitlines()
    assert json.loads(line)["deed"] == "recorded"
    assert (verify(run).wrong, verify(run).remarks) == ([], before)


def test_a_run_that_could_not_be_signed_is_reported(tmp_path: Path) -> None:
    private, _ = keys(tmp_path, "mine")
    node = Node(tmp_path / "spool", RunDir(tmp_path / "run"), signing_key=str(private))
    with contextlib.closing(node.start()):
        node.records(0, world=1)
        node.lives(0, world=1)
        private.unlink()  # while the job trained
        said = [word.text for word in node.end() if word.kind == "lacking"]
    assert len(said) == 1
    assert said[0].startswith("run.json is not signed: store.signing_key:")
    assert said[0] in node.manifest.notes  # and so in the report
    assert any("it is not signed" in remark for remark in verify(node.run.path).remarks)


def test_a_signature_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    private, _ = keys(tmp_path, "mine")
    node = Node(tmp_path / "spool", RunDir(tmp_path / "run"), signing_key=str(private))
    with contextlib.closing(node.start()):
        node.lives(0, world=1)
        (node.run.signature / "taken").mkdir(parents=True)
        said = [word.text for word in node.end() if word.kind == "lacking"]
    assert [text.partition(": ")[0] for text in said] == ["run.json is not signed"]
    assert "its signature could not be written" in said[0]


def test_each_verb_that_writes_something_of_a_run_elsewhere_is_in_its_log(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (run / "report").mkdir()
    assert main(["analyze", str(run / "attempt_0"), "--no-hta", "--output", str(run / "report")]) == 0
    store = ["--store", str(out / "store")]
    kept = [
        ["report", str(run / "report" / "report.json"), "--output", str(out / "report")],
        ["export", str(run), "--to", "openmetrics", "--output", str(out / "metrics.txt")],
        ["reduce", str(run), "--output", str(out / "reduced")],
        ["cluster-report", str(out / "reduced"), "--run", str(run), "--no-hta", "--output", str(out / "cluster")],
        ["merge", str(run), "--output", str(out / "all.json.gz")],
        ["baseline", "set", "gpt", str(run), *store],
        ["diff", "baseline:gpt", str(run / "report" / "report.json"), *store, "--output", str(out / "diff.html")],
    ]
    nothing = [["report", str(run)], ["check", str(run / "report" / "report.json"), "--fail-if", "step > 9999 ms"]]
    for command in (*nothing, *kept):
        assert main(command) == 0, command
    deeds = [json.loads(line) for line in (run / AUDIT).read_text().splitlines()]
    assert [deed["deed"] for deed in deeds] == ["recorded", *["exported"] * (1 + len(kept))]
    places = ["report", "metrics.txt", "reduced", "cluster", "all.json.gz", "gpt", "diff.html"]
    assert all(place in deed["to"] for place, deed in zip(places, deeds[2:], strict=True))
    assert not (out / AUDIT).exists()
