"""A sweep of a real job: two settings, two runs each alternately, and the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope import read_manifest, read_sweep
from support.launching import JOBS, LIMIT_S, environment


def sweep(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rankscope", "sweep", "--dir", "tried", *words],
        cwd=cwd, capture_output=True, text=True, timeout=4 * LIMIT_S, check=False,
        env=environment() | {"NOBODY": "before"},
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(4 * LIMIT_S + 600)  # four launches, on a busy machine as well
def test_two_settings_in_turns(tmp_path: Path) -> None:
    words = [
        *("--repeat", "2", "--nproc-per-node", "2", "-S", "schedule=short", "-S", "analysis.enabled=false"),
        *("-S", "script.input-ms=40,null", "-S", "env.NOBODY=after", str(JOBS / "train.py")),
        *("--bad-rank", "1", "--steps", "40", "--input-ms", "20"),
    ]
    done = sweep("--format", "json", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert [row["name"] for row in table["rows"]] == ["input-ms=40", "input-ms=null"]
    assert [len(row["each_ms"]) for row in table["rows"]] == [2, 2]
    assert all(ms > 0 for row in table["rows"] for ms in row["each_ms"])
    assert (table["step_source"], table["noise_source"]) == ("unrecorded", "usual")
    assert table["ended"] == table["planned"] == 4
    said = [line.partition(": ")[2].partition(": ")[0] for line in done.stderr.splitlines() if "/4 " in line]
    assert said == ["1/4 input-ms=40, run 1", "2/4 input-ms=null, run 1",
                    "3/4 input-ms=null, run 2", "4/4 input-ms=40, run 2"]  # fmt: skip
    # each run is one as any other, and knows with what it was run
    manifest = read_manifest(tmp_path / "tried" / "setting_001_run_02")
    assert (manifest.config["script"], manifest.config["env"]) == ({"input-ms": 40}, {"NOBODY": "after"})
    assert "script.input-ms=40" in manifest.argv
    assert read_manifest(tmp_path / "tried" / "setting_002_run_01").config["script"] == {"input-ms": None}

    again = sweep(*words, cwd=tmp_path)
    assert again.returncode == 0
    assert "4 of 4 runs have ended before and are not run again" in again.stderr
    assert read_sweep(tmp_path / "tried").table.loc["input-ms=40", "runs"] == 2
    assert "NOBODY" not in os.environ
