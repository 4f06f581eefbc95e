"""What a rank sees of PYTHONPATH is what it would see without rankscope, also below a script that has changed it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.launcher.job import changes_for
from rankscope.rundir.spool import Spool

SHOWS = "import json, os, sys; print(json.dumps([os.environ.get('PYTHONPATH'), sys.path]))"
RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


def seen(own: str | None, script: str, folder: Path, *, ours: bool) -> list[object]:
    """PYTHONPATH and ``sys.path`` of a rank that a shell script has started."""
    env = {"PATH": os.environ["PATH"]} | ({} if own is None else {"PYTHONPATH": own})
    env |= changes_for(Spool(folder), env) if ours else {}
    words = ["sh", "-c", f'{script}; exec "$0" -c "$1"', sys.executable, SHOWS]
    return json.loads(subprocess.run(words, env=env | RANK, cwd=folder, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("own", [None, "", "/own", ":/own:/other"])
@pytest.mark.parametrize(
    "script",
    [
        ":",
        "export PYTHONPATH=/src:$PYTHONPATH",
        "export PYTHONPATH=$PYTHONPATH:/src",
        "export PYTHONPATH=/a:$PYTHONPATH:/b",
        "export PYTHONPATH=/src",
        "unset PYTHONPATH",
    ],
)
def test_a_rank_sees_the_path_that_it_would_see_alone(own: str | None, script: str, tmp_path: Path) -> None:
    assert seen(own, script, tmp_path, ours=True) == seen(own, script, tmp_path, ours=False)


def test_an_empty_entry_may_remain_where_a_script_has_left_it_out(tmp_path: Path) -> None:
    """What a script wrote cannot be told from its result; this one is the rarer."""
    script = "export PYTHONPATH=/src${PYTHONPATH:+:$PYTHONPATH}"
    assert seen("/own", script, tmp_path, ours=True) == seen("/own", script, tmp_path, ours=False)
    assert seen(None, script, tmp_path, ours=False)[0] == "/src"
    assert seen(None, script, tmp_path, ours=True)[0] == "/src:"


def test_a_script_may_sort_the_entries(tmp_path: Path) -> None:
    script = 'export PYTHONPATH=/b:$(printf %s "$PYTHONPATH" | tr : "\\n" | sort | paste -sd:)'
    assert seen("/a:/c", script, tmp_path, ours=True) == seen("/a:/c", script, tmp_path, ours=False)
