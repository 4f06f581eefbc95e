"""``rankscope demo --then-fix`` runs the demo twice with the same settings, and compares the results."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from rankscope.cli import main

from .conftest import DATA


def test_both_runs_and_their_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    asked: list[list[str]] = []

    def run(words: list[str], *, check: bool, stdout: IO[bytes], stderr: int) -> SimpleNamespace:
        asked.append(words)
        (folder,) = [Path(word.removeprefix("run.dir=")) for word in words if word.startswith("run.dir=")]
        name = "gloo_ddp_input" if folder.name == "fault" else "gloo_ddp_none"
        shutil.copytree(DATA / name, folder)
        return SimpleNamespace(returncode=0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    assert main(["demo", "--then-fix", "--size", "50", "-S", "schedule.active=4"]) == 0
    first, second = (words[words.index("demo") :] for words in asked)
    assert first[:3] == ["demo", "--fault", "input_stall"]
    assert second[:3] == ["demo", "--fault", "none"]
    assert "--size" in first
    assert "--size" not in second
    assert "schedule.active=4" in first
    assert "schedule.active=4" in second
    assert first[first.index("--steps") + 1] == second[second.index("--steps") + 1]
    out, err = capsys.readouterr()
    assert out.startswith("Found          Rank 1 ")
    assert "\nAdvice         " in out
    assert "\nTurned         --fault input_stall -> --fault none\n" in out
    assert max(map(len, out.splitlines())) <= 80
    assert err.count("what the job prints goes to") == 2
    assert "fault -> fixed" in out
    assert "work of the host" in out


def test_a_job_that_fails_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=7))
    assert main(["demo", "--then-fix"]) == 7
