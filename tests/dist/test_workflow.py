"""The workflow of docs/guide/compare.md, step by step as a runner does: on the main branch, then in a pull request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.launching import JOBS

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "compare.md"
TRAIN = """
import runpy, sys
sys.argv = [{job!r}]
runpy.run_path({job!r}, run_name="__main__")
"""


def workflow() -> dict[str, Any]:
    text = PAGE.read_text(encoding="utf-8").partition("<!-- workflow -->\n```yaml\n")[2].partition("\n```")[0]
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@pytest.mark.long
def test_each_step_of_the_workflow(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(job=str(JOBS / "train.py")))
    flow, summary = workflow(), tmp_path / "summary.md"
    binaries = tmp_path / "bin"
    binaries.mkdir()
    command = binaries / "rankscope"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rankscope "$@"\n')
    command.chmod(0o755)
    place = flow["env"]["RANKSCOPE_BASELINES"]
    assert place.startswith("/mnt/")
    env = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "RANKSCOPE_BASELINES": str(tmp_path / "baselines"),
        "GITHUB_STEP_SUMMARY": str(summary),
        "CUDA_VISIBLE_DEVICES": "",
    }
    steps = [step for step in flow["jobs"]["profile"]["steps"] if "run" in step]
    assert [step["name"] for step in steps][:2] == ["record", "accept what is on the main branch"]
    outputs = {}
    for event in ("push", "pull_request"):
        for step in steps:
            if step.get("if") == "github.event_name == 'push'" and event != "push":
                continue
            if (step["name"] in {"counts", "times"}) == (event == "push"):
                continue  # the pull request changes nothing: the same run stands for it
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", step["run"]],
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            assert done.returncode == 0, (step["name"], done.stdout, done.stderr)
            outputs[event, step["name"]] = done.stdout
    assert outputs["pull_request", "counts"] == "::notice title=rankscope::no condition holds\n"
    assert outputs["pull_request", "times"].startswith("::")
    assert summary.read_text().count("**") == 4
