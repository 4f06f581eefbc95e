"""Verbs, exit codes, and output streams."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from rankscope import cli
from rankscope.cli.parts.config_help import keys as every_key
from rankscope.cli.parts.console import FORMATS, say
from rankscope.compose import _keys
from rankscope.config import ScheduleConfig, ToolConfig
from rankscope.config_summary import plan_in_words
from rankscope.launcher.ending import Ending
from rankscope.records.codec import from_json, to_json
from rankscope.records.report import ClockReport, ClusterReport, CollectivesReport, RunInfo, Verdict, VerdictKind
from rankscope.records.rows import RankSummary

REPORT = ClusterReport(
    run=RunInfo(source="traces", world_size=1),
    ranks=[RankSummary(rank=0)],
    clock=ClockReport(method="none"),
    collectives=CollectivesReport(count=0, matched_pct=None, method="none"),
    verdict=Verdict(kind="insufficient_data", sentence="Only one rank left a trace."),
)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in ((["--help"], "examples:"), (["--version"], "rankscope 0."), (["analyze", "-h"], "DIR_OR_FILE")):
        with pytest.raises(SystemExit, match="0"):
            cli.main(words)
        assert said in capsys.readouterr().out


def test_the_help_of_run_is_torchruns_and_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--help-torchrun"]) == 0
    assert "--rdzv-backend" in capsys.readouterr().out
    assert cli.main(["run", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--rdzv-backend" not in out
    assert "-S KEY=VALUE" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run"], 2, "script to launch is missing"),
        (["run", "--bogus=1", "x.py"], 2, "unrecognized arguments: --bogus=1"),
        (["run", "-S", "schedule=shrt", "x.py"], 2, "did you mean short"),
        (["run", "--nnodes", "2", "x.py"], 2, "--rdzv-id"),
        (["config", "-S", "schedule.warmup=0"], 2, "schedule.warmup=0"),
        (["analyze", "/does/not/exist"], 2, "does not exist"),
        (["report", "/does/not/exist"], 3, "does not exist"),
        (["status", "/does/not/exist"], 3, "does not exist"),
        ([], 2, "a verb is missing; `rankscope --help` lists all of them"),
        (["analyz", "x"], 2, "did you mean analyze?"),
        (["xyz"], 2, "choose one of run, exec, analyze"),
        (["demo", "--fault", "input_stal"], 2, "did you mean input_stall?"),
        (["report", "x", "--format", "jsn"], 2, "did you mean json?"),
        (["analyze"], 2, "see rankscope analyze --help"),
        (["config", "-S", "schedule.active=abc"], 2, "schedule.active: 'abc' is not a whole number"),
        (["config", "--explain", "schedule.actives"], 2, "did you mean schedule.active?"),
        (["demo", "--ranks", "0"], 2, "--ranks 0"),
        (["demo", "--ranks", "2", "--bad-rank", "2"], 2, "--bad-rank 2"),
    ],
)
def test_a_mistake_is_one_line_on_stderr(
    words: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rankscope: error: ")
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_config_prints_yaml_and_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "-S", "schedule=short"]) == 0
    out = capsys.readouterr().out
    assert "skip_first: 2" in out
    assert "# steps 3 to 5 of every rank will be recorded" in out


def test_the_plan_tells_what_follows_the_first_window() -> None:
    config = ToolConfig(schedule=ScheduleConfig(every=1000))
    first, *more = plan_in_words(config)
    assert first == (
        "steps 13 to 18 of every rank will be recorded, then 6 steps every 1,000 steps to the end of the job"
        " (the first step is 0)"
    )
    limits = "stays within 20 windows, 2000 MB and 5 % of the steps"
    assert f"what is recorded every so many steps {limits}; the first window always comes" in more


def test_every_key_is_explained_with_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "--explain", "-S", "schedule.active=3"]) == 0
    out = capsys.readouterr().out
    assert "schedule.active: 3   (default: 6)\n    Steps recorded in each cycle." in out
    assert max(map(len, out.splitlines())) <= 80
    assert [key.name for key in every_key()] == _keys()
    assert all(key.meaning.endswith(".") for key in every_key())
    cli.main(["config", "--explain", "run.dir"])
    assert capsys.readouterr().out.startswith("run.dir: null\n    The run directory.")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_a_shell_learns_verbs_and_flags(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("analyze", "gather", "completion") + (() if shell == "tcsh" else ("no-hta", "nproc-per-node")):
        assert word in script  # shtab completes verbs only in tcsh


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["completion", "bash"])
    (tmp_path / "complete.sh").write_text(capsys.readouterr().out)
    lines = 'source complete.sh; COMP_WORDS=(rankscope an); COMP_CWORD=1; _shtab_rankscope; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "analyze\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["completion", "fish"])
    (tmp_path / "complete.fish").write_text(capsys.readouterr().out)

    def offered(line: str) -> list[str]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source complete.fish; complete -C '{line}'"],
            cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.stderr == ""
        return [word.partition("\t")[0] for word in done.stdout.splitlines()]

    assert offered("rankscope an") == ["analyze"]
    assert "--no-hta" in offered("rankscope analyze --no")
    assert offered("rankscope analyze --format j") == ["json"]
    assert "complete.fish" in offered("rankscope analyze comp")


def test_a_folder_that_was_removed_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", gone)
    assert cli.main(["config"]) == 3
    assert capsys.readouterr().err == "rankscope: error: the current folder was removed; change into another one\n"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "report"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(to_json(REPORT))
    return folder


@pytest.mark.parametrize("where", ["..", ".", "report.json"])
def test_report_finds_it_from_run_folder_or_file(written: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(written / where), "--format", "json"]) == 0
    assert from_json(ClusterReport, capsys.readouterr().out) == REPORT


def test_readers_of_the_first_schema_get_the_kinds_that_they_know(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"straggler", "balanced", "host_bound", "comm_bound", "pipeline", "insufficient_data"}
    instead = {"memory_bound": "balanced", "contended": "insufficient_data"}
    for kind in get_args(VerdictKind):  # a kind that comes later needs its place here, too
        (written / "report.json").write_text(to_json(replace(REPORT, verdict=replace(REPORT.verdict, kind=kind))))
        words = ["report", str(written), "--format", "json"]
        assert cli.main(words) == 0
        assert json.loads(capsys.readouterr().out)["verdict"]["kind"] == kind
        assert cli.main([*words, "--schema", "1"]) == 0
        known = json.loads(capsys.readouterr().out)["verdict"]
        assert known["kind"] == instead.get(kind, kind) in first
        assert known["sentence"] == REPORT.verdict.sentence


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_goes_to_stdout(written: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(written), "--format", form]) == 0
    assert "Only one rank left a trace" in capsys.readouterr().out


def test_output_writes_the_files(written: Path, tmp_path: Path) -> None:
    assert cli.main(["report", str(written), "--output", str(tmp_path / "out")]) == 0
    assert {"report.json", "report.html"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_a_file_that_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_text("[]")
    assert cli.main(["report", str(tmp_path)]) == 3
    assert "not a report of rankscope" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error(written: Path) -> None:
    words = [sys.executable, "-m", "rankscope", "report", str(written), "--format", "json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(60)


@pytest.mark.process
def test_the_demo_listens_on_loopback_only() -> None:
    code = (
        "import os, torch.distributed as dist\n"
        "from rankscope.demo.loopback import loopback_rendezvous\n"
        "def ports():\n"
        "    inodes = {os.readlink(f'/proc/self/fd/{fd}')[8:-1] for fd in os.listdir('/proc/self/fd')\n"
        "              if os.path.islink(f'/proc/self/fd/{fd}') and 'socket:' in os.readlink(f'/proc/self/fd/{fd}')}\n"
        "    rows = [line.split() for name in ('tcp', 'tcp6') for line in open(f'/proc/self/net/{name}')]\n"
        "    return [row[1] for row in rows if row[3] == '0A' and row[9] in inodes]\n"
        "with loopback_rendezvous() as flags:\n"
        "    port = int(flags[2].partition('=')[2])\n"
        "    again = dist.TCPStore('127.0.0.1', port, 1, True, multi_tenant=True)\n"  # as torchrun does
        "    again.set('a', 'b')\n"
        "    print(*ports())\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    listening = done.stdout.split()
    assert len(listening) == 1
    assert listening[0].startswith("0100007F:")


def test_a_broken_hydra_does_not_keep_the_job_from_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran_with: list[str] = []

    def run_torchrun(namespace: Any) -> Ending:
        ran_with.append(namespace.training_script)
        return Ending(1)

    monkeypatch.setitem(sys.modules, "rankscope.compose", None)
    monkeypatch.setattr("rankscope.launcher.run.torchrun.run_torchrun", run_torchrun)
    assert cli.main(["run", "train.py"]) == 1
    assert ran_with == ["train.py"]
    assert "not recording" in capsys.readouterr().err


def test_say_survives_a_closed_stderr(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stream: Any = (tmp_path / "x").open("w")
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    say("nobody hears this")


@pytest.mark.data
@pytest.mark.parametrize(
    ("part", "words"),
    [
        (("--steps", "50-60"), "steps 50 to 60 were not recorded; there are steps 4 to 8"),
        (("--window", "0.3"), "window (0, 3) was not recorded; recorded: 0"),
        (("--window", "last"), "--window last is no window"),
    ],
)
def test_a_part_that_was_not_recorded(part: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    traces = Path(__file__).parents[1] / "data" / "traces" / "gloo_ddp_input"
    assert cli.main(["analyze", str(traces), "--no-hta", *part]) == 2
    assert words in capsys.readouterr().err
