"""No process of rankscope imports modules from the current folder, or needlessly from PYTHONPATH."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rankscope
from rankscope import own_process
from support.launching import environment

NAMES = (
    "gzip json socket hashlib struct pathlib tempfile typing pickle runpy contextlib signal multiprocessing numpy torch"
)
ROOT = Path(rankscope.__file__).parent


@pytest.fixture
def trap(tmp_path):
    """A folder full of modules that note that they were imported."""
    folder, marker = tmp_path / "trap", tmp_path / "marker"
    folder.mkdir()
    for name in NAMES.split():
        (folder / f"{name}.py").write_text(
            f"import sys\nopen({str(marker)!r}, 'a').write({name!r} + ' by ' + ' '.join(sys.orig_argv[1:]) + chr(10))\n"
            f"raise ImportError('not the {name} that was meant')\n"
        )
    return folder, marker


OURS = {
    "the node helper": ("rankscope.node", "/nowhere"),
    "the report": ("rankscope.launcher.report_process", "/nowhere", "no-hta"),
}
POOL = """
import sys
from rankscope.trace.files.load import load_traces
from pathlib import Path
if __name__ == "__main__":
    assert len(load_traces([Path(sys.argv[1])], workers=3, cache=False).traces) == 3
"""


@pytest.mark.parametrize("path", [pytest.param("nothing", marks=pytest.mark.long), "the folder and a relative path"])
@pytest.mark.parametrize("process", OURS)
def test_a_process_of_ours_is_started_safely(trap, process, path, monkeypatch):
    folder, marker = trap
    monkeypatch.chdir(folder)
    if path != "nothing":
        monkeypatch.setenv("PYTHONPATH", f"{folder}:.")
        monkeypatch.syspath_prepend(str(folder))
    done = subprocess.run(
        own_process.command(*OURS[process]), cwd=folder, env=own_process.environment(), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not marker.exists(), marker.read_text()
    assert "No module named" not in done.stderr


def test_workers_that_read_traces_are_started_safely(trap, tmp_path):
    folder, marker = trap
    from support.small_job import Job

    Job(ranks=3).write(tmp_path / "traces")
    script = tmp_path / "script" / "read.py"  # its folder is first on the path, as of every script
    script.parent.mkdir()
    script.write_text(POOL)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "traces")], cwd=folder, env=environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not marker.exists(), marker.read_text()


def test_the_flag_for_workers_is_taken_back(monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with own_process.safe_spawn():
        pass
    assert "PYTHONSAFEPATH" not in os.environ


def test_a_package_that_was_found_on_pythonpath_is_found_again(monkeypatch, tmp_path):
    """As with ``pip install --target``: rankscope itself is what PYTHONPATH is needed for."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT.parent))
    assert str(ROOT.parent) in own_process.command("x")[-2].split(os.pathsep)


def test_no_process_is_started_in_another_way():
    """Who starts Python does it by own_process, or isolated with a text of ours."""
    found = []
    for path in ROOT.rglob("*.py"):
        if path.name == "own_process.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words = [ast.unparse(item) for item in node.elts] if isinstance(node, ast.List) else []
            if "sys.executable" in words and "'-I'" not in words:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
