"""Capture backends: each file is in the table, each row leads to a class, and no other code uses its name."""

from __future__ import annotations

import inspect
import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from rankscope.agent import backends
from rankscope.agent.backends.base import Capture
from rankscope.capture_backends import OURS, Backend, load_capture, recorder, resolve
from rankscope.config import CaptureConfig
from rankscope.errors import ConfigError

METHODS = {name for name, member in vars(Capture).items() if inspect.isfunction(member) and not name.startswith("_")}
RECORDING = [backend for backend in OURS if backend.capture]


def test_each_capture_of_the_folder_is_in_the_table_once() -> None:
    modules = [import_module(f"rankscope.agent.backends.{m.name}") for m in pkgutil.iter_modules(backends.__path__)]
    captures = {
        f"{module.__name__}:{name}"
        for module in modules
        for name, member in vars(module).items()
        if inspect.isclass(member) and member.__module__ == module.__name__ and member is not Capture
        if vars(member).keys() >= METHODS
    }
    assert len(captures) == 2
    assert sorted(backend.capture for backend in RECORDING) == sorted(captures)


@pytest.mark.parametrize("backend", RECORDING, ids=lambda b: b.name)
def test_a_row_names_a_capture_that_bears_its_name(backend: Backend) -> None:
    capture = load_capture(backend.name)
    assert capture.name == backend.name
    assert vars(capture).keys() >= METHODS
    assert list(inspect.signature(capture).parameters) == ["spec", "detaching"]


@pytest.mark.parametrize("backend", OURS, ids=lambda b: b.name)
def test_each_is_accepted_explained_and_recorded_by_one_that_records(backend: Backend) -> None:
    assert CaptureConfig(backend=backend.name).backend == backend.name
    page = (Path(__file__).parents[3] / "docs" / "capture.md").read_text(encoding="utf-8")
    assert f"**{backend.name}**" in page or f"`{backend.name}`" in page
    name, reason = resolve(backend.name)
    assert name in {b.name for b in RECORDING}
    assert reason == backend.reason
    assert recorder(backend.name) == backend.recorder


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"capture\.backend=inlines is not known; did you mean inline"):
        CaptureConfig(backend="inlines")
    assert resolve("gone") == ("gone", None)
    assert recorder("gone") == "gone"
    with pytest.raises(LookupError, match=r"capture\.backend=gone is not installed in the environment of this rank"):
        load_capture("gone")


@pytest.mark.parametrize("words", [{}, {"capture": "a.b:C", "instead": "inline"}, {"capture": "a.b.C"}])
def test_a_row_without_a_recorder_is_refused(words) -> None:
    with pytest.raises(ValueError, match="new: a backend has a capture"):
        Backend(name="new", recorder="nobody yet", **words)


ASK = """
from rankscope.capture_backends import backend_names, load_capture, resolve
from rankscope.config import CaptureConfig
CaptureConfig(backend="theirs")
assert backend_names()[-1] == "theirs", backend_names()
assert resolve("theirs") == ("theirs", None)
print(load_capture("theirs").__name__)
"""
THEIRS = """
from rankscope.capture_backends import Backend
BACKEND = Backend(name="theirs", recorder="their tool", capture="their_capture:TheirCapture")
"""


def test_a_backend_of_another_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "their_backend.py").write_text(THEIRS, encoding="utf-8")
    (tmp_path / "their_capture.py").write_text("class TheirCapture:\n    name = 'theirs'\n", encoding="utf-8")
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[rankscope.backends]\ntheirs = their_backend:BACKEND\n", encoding="utf-8")
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.returncode) == ("TheirCapture\n", 0), done.stderr
