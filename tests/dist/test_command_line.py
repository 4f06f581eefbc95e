"""Exit codes and output of scripts are the same under ``rankscope run`` and under torchrun."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.launching import LIMIT_S


def ran(argv: list[str], cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"OMP_NUM_THREADS": "1", **environ}
    return subprocess.run(
        [sys.executable, "-m", *argv], cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=env
    )


# How the others are started is held by tests/dist/test_promise.py.
@pytest.mark.parametrize(
    "form", ["script", *(pytest.param(f, marks=pytest.mark.long) for f in ("module", "no-python"))]
)
def test_a_failing_job_ends_and_looks_as_under_torchrun(tmp_path: Path, form: str) -> None:
    (tmp_path / "fails.py").write_text("import sys\nprint(sys.argv[1:])\nraise ValueError('boom')\n")
    words = {
        "script": ["fails.py"],
        "module": ["-m", "fails"],
        "no-python": ["--no-python", sys.executable, "fails.py"],
    }[form]
    theirs = ran(["torch.distributed.run", *words, "--lr", "1"], tmp_path)
    ours = ran(["rankscope", "run", "-S", "run.dir=r", *words, "--lr", "1"], tmp_path)
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)

    def told(text: str) -> list[str]:
        before_the_summary = text.partition("\n\nVerdict")[0]
        kept = [line for line in before_the_summary.splitlines() if not line.startswith("rankscope: ")]
        users = kept[: next(n for n, line in enumerate(kept) if "ValueError: boom" in line) + 1]
        plain = [re.sub(r"\d+", "N", line) for line in kept if not re.match(r"  (File|  )|W\d{4}", line)]
        return [*users, *plain]

    assert told(ours.stderr) == told(theirs.stderr)


def test_a_job_that_goes_well_keeps_its_stdout_and_refused_arguments(tmp_path: Path) -> None:
    (tmp_path / "ok.py").write_text("import sys\nprint(__name__, sys.argv)\n")
    done = ran(["rankscope", "run", "ok.py", "--start", "5", "-S", "a=b"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "__main__ ['ok.py', '--start', '5', '-S', 'a=b']\n")
    assert (tmp_path / "rankscope_runs" / "run_0001" / "run.json").is_file()
