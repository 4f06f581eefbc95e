"""The import hook, and the sitecustomize that starts the agent in a rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rankscope.agent.inject
from rankscope.agent.process.guard import kept_messages
from rankscope.agent.process.import_hooks import after_import

pytestmark = pytest.mark.process

INJECT = Path(rankscope.agent.inject.__file__).parent


def test_callback_comes_once_after_the_module_is_complete(tmp_path, monkeypatch):
    (tmp_path / "watched_module.py").write_text("value = 41\nvalue += 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    after_import("watched_module", lambda: seen.append(sys.modules["watched_module"].value))
    import watched_module  # noqa: F401

    after_import("watched_module", lambda: seen.append("at once"))
    assert seen == [42, "at once"]
    monkeypatch.delitem(sys.modules, "watched_module")


def test_a_failing_callback_does_not_fail_the_import(tmp_path, monkeypatch, capfd):
    (tmp_path / "watched_too.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    after_import("watched_too", lambda: 1 / 0)
    import watched_too  # noqa: F401

    assert any("training goes on" in sentence for sentence in kept_messages())
    assert capfd.readouterr() == ("", "")  # which may be files of the job's own
    monkeypatch.delitem(sys.modules, "watched_too")


def test_a_module_that_does_not_exist_stays_missing():
    after_import("no_such_module_anywhere", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        import no_such_module_anywhere  # noqa: F401


def python(code: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


def test_the_users_own_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = True\n")
    seen = python(
        "import os, sys; print(mine, os.environ.get('PYTHONPATH'), sys.modules['sitecustomize'].__file__)",
        RANK="0", WORLD_SIZE="1", PYTHONPATH=f"{INJECT}:{tmp_path}", RANKSCOPE_PYTHONPATH=str(tmp_path),
        RANKSCOPE_AGENT="/no/spec",
    )  # fmt: skip
    assert seen == f"True {tmp_path} {tmp_path / 'sitecustomize.py'}"


def test_children_and_non_ranks_see_nothing():
    ask = "import os, sys; print(sorted(k for k in os.environ if 'SCOPE' in k or k == 'PYTHONPATH'))"
    rank = {"RANK": "0", "WORLD_SIZE": "1", "RANKSCOPE_AGENT": "/no/spec"}
    assert python(ask, PYTHONPATH=str(INJECT), **rank) == "[]"
    # what was there and empty is there again, and empty
    assert python(ask, PYTHONPATH=str(INJECT), RANKSCOPE_PYTHONPATH="", **rank) == "['PYTHONPATH']"
    # a launcher between us and the ranks hands the message on
    assert "RANKSCOPE_AGENT" in python(ask, PYTHONPATH=str(INJECT), RANKSCOPE_AGENT="/no/spec")


def test_a_rank_without_its_spec_is_reported_once_it_imports_torch(tmp_path):
    (tmp_path / "torch.py").write_text("")
    rank = {"RANK": "0", "WORLD_SIZE": "1", "RANKSCOPE_AGENT": "/no/spec", "PYTHONPATH": f"{INJECT}:{tmp_path}"}
    rank["RANKSCOPE_PYTHONPATH"] = str(tmp_path)
    told = []
    for code in ("print(1)", "import torch; print(1)"):
        done = subprocess.run([sys.executable, "-c", code], env=rank, capture_output=True, text=True, check=True)
        assert done.stdout == "1\n"
        told.append(done.stderr)
    assert told[0] == ""
    assert "rankscope: this rank is not profiled: FileNotFoundError" in told[1]
    assert told[1].count("\n") == 1
