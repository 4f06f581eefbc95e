"""A marker planted in every place of a run does not occur in its copy, however it is packed."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.privacy.files.step_logs import redact_step_log
from rankscope.privacy.naming.policy import LEVELS
from rankscope.privacy.naming.tokens import Tokens, load_key, reveal
from rankscope.privacy.naming.words import Words
from rankscope.privacy.redact import Copy, redact
from rankscope.records.running.step_log import STEP_LOG_COLUMNS, STEP_LOG_ENTRY, STEP_LOG_HEADER
from rankscope.trace.kineto.build import read_trace
from support import planted

pytestmark = pytest.mark.data


def every_text(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file, unpacked as far as it goes, and its name."""
    for path in folder.rglob("*"):
        yield str(path), path.relative_to(folder).as_posix().encode()
        if path.is_file():
            data = path.read_bytes()
            yield str(path), data
            if data[:2] == b"\x1f\x8b":
                yield str(path), gzip.decompress(data)
            if path.suffix == ".pickle":
                yield str(path), repr(pickle.loads(data)).encode()


def found(folder: Path) -> set[str]:
    """What of the planted is found, and where: as it is, in other letters, in base64 and in hexadecimal."""
    word = planted.WORD.encode()
    plain = [
        word.lower(),
        *(base64.b64encode(b"x" * pad + word)[4 if pad else 0 : -4].lower() for pad in range(3)),
        word.hex().encode(),
    ]
    plain += [word[::-1].lower()]
    numbers = [planted.NUMBER, planted.PID, planted.ADDRESS, planted.BASE, planted.BASE // 1000]
    plain += [str(number).encode() for number in numbers] + [f"{planted.ADDRESS:x}".encode()]
    here = str(folder.parent).lower().encode()
    return {
        f"{needle.decode()} in {name}"
        for name, text in every_text(folder)
        for needle in (*plain, here)
        if needle in text.lower()
    }


@pytest.fixture(scope="module", params=["share", "vendor", "public"])
def copied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    top = tmp_path_factory.mktemp(request.param)
    run = planted.run(top / "run")
    assert len(found(run)) > 20  # it is looked for in the right way
    return redact(run, top / "out" / "copy", LEVELS[request.param])


def test_nothing_planted_is_in_the_copy(copied: Copy) -> None:
    kept = {"share": {str(planted.PID), str(planted.BASE), str(planted.BASE // 1000)}}.get(
        copied.output.parts[-3][:5], set()
    )
    assert {what for what in found(copied.output) if what.split(" ")[0] not in kept} == set()


def test_the_copy_has_a_report_that_says_what_it_is(copied: Copy) -> None:
    assert copied.report is not None, copied.no_report
    level = json.loads((copied.output / "run.json").read_text())["redaction"]["level"]
    assert copied.report.run.redacted == level
    for name in ("report.md", "report.html"):
        assert f"a redacted copy (level {level})" in (copied.output / "report" / name).read_text()


def test_files_that_are_not_known_are_named_and_not_copied(copied: Copy) -> None:
    names = {path.relative_to(copied.output).as_posix() for path in copied.output.rglob("*") if path.is_file()}
    original = copied.output.parents[1] / "run"
    memory = "" if copied.output.parts[-3].startswith("public") else "attempt_0/window_000/rank_00000.memory.pickle"
    wanted = {"run.json", "attempt_0/window_000/rank_00000.trace.json.gz", "attempt_0/pulse/rank_00000.bin.gz"}
    assert wanted | ({memory} if memory else set()) <= names
    for name in ("agent.json", "live/0.json", "stuck/0.json", "metrics.prom", "run.json.sig", "audit.jsonl"):
        assert copied.left_out[name] == "no analysis reads it"
    everything = {path.relative_to(original).as_posix() for path in original.rglob("*") if path.is_file()}
    assert everything - names - set(copied.left_out) == set()  # whatever is not copied is named
    assert copied.left_out[f"{planted.WORD}/notes.txt"] == "not known"
    assert copied.left_out["report/report.html"] == "made again of the copy"


def test_the_key_lies_beside_the_copy_for_its_owner_and_turns_tokens_back(copied: Copy) -> None:
    assert stat.S_IMODE(copied.key.stat().st_mode) == 0o600
    assert not copied.key.is_relative_to(copied.output)
    tokens = load_key(copied.key)
    text = zlib.decompress((copied.output / "attempt_0/window_000/rank_00000.trace.json.gz").read_bytes(), 31).decode()
    back = reveal(text, tokens)
    for name in planted.NAMES:
        if isinstance(name, str) and len(name) < 1000 and f"FSDP::all_gather ({planted.WORD}" not in name:
            assert planted.WORD in name
    assert f"FSDP::all_gather ({planted.WORD}.3.{planted.WORD}_mlp)" in back
    assert f"{planted.NUMBER}x2" in back


def test_the_copy_is_a_trace_like_the_original(copied: Copy) -> None:
    trace = read_trace(copied.output / "attempt_0/window_000/rank_00001.trace.json.gz")
    assert trace.rank == 1
    assert [int(n) for n in trace.steps.number] == [1, 2, 3]
    assert trace.meta.versions["torch"] == "2.9.0"


def test_a_run_in_the_copy_or_a_key_in_it_is_refused(tmp_path: Path) -> None:
    from rankscope.errors import ConfigError

    (tmp_path / "run").mkdir()
    with pytest.raises(ConfigError, match="a copy goes elsewhere"):
        redact(tmp_path / "run", tmp_path / "run" / "copy", LEVELS["public"])
    with pytest.raises(ConfigError, match="would be passed on"):
        redact(tmp_path / "run", tmp_path / "copy", LEVELS["public"], key=tmp_path / "copy" / "key")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ConfigError, match="holds something already"):
        redact(tmp_path / "run", tmp_path / "full", LEVELS["public"])


def test_names_of_files_of_others_are_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "given" / f"{planted.WORD}-host"
    folder.mkdir(parents=True)
    for rank in (0, 1):
        name = f"{planted.WORD}07_{planted.PID}.rank{rank}.1700000000123.pt.trace.json"
        (folder / name).write_text(json.dumps(planted.trace(rank)))
    copy = redact(tmp_path / "given", tmp_path / "out" / "copy", LEVELS["public"])
    assert copy.files == 2
    assert found(copy.output) == set()
    assert copy.report is not None
    assert [rank.rank for rank in copy.report.ranks] == [0, 1]


@pytest.mark.parametrize("level", LEVELS)
def test_a_step_log_keeps_its_times_and_nothing_else(level: str, tmp_path: Path) -> None:
    run = planted.run(tmp_path / "run")
    words = Words(Tokens(bytes(32)), LEVELS[level])
    redact_step_log(run / "attempt_0/pulse/rank_00000.bin.gz", tmp_path / "copy.gz", words)
    plain = gzip.decompress((tmp_path / "copy.gz").read_bytes())
    assert STEP_LOG_HEADER.unpack(plain[: STEP_LOG_HEADER.size])[3] == 0
    entries = list(STEP_LOG_ENTRY.iter_unpack(plain[STEP_LOG_HEADER.size :]))
    ended = planted.BASE if level == "share" else planted.BASE - words.earlier_ns
    assert entries == [(*range(len(STEP_LOG_COLUMNS)), 1, 0x7F, 2, 0, ended)] * 3
