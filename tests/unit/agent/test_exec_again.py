"""A rank that replaces itself by another program stays a rank; its children are not affected."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rankscope.agent.inject

pytestmark = pytest.mark.process

INJECT = Path(rankscope.agent.inject.__file__).parent
SAYS = (
    "import json, os, sys; print(json.dumps([os.getpid(), 'rankscope.agent.bootstrap' in sys.modules, "
    "sorted(n for n in os.environ if n.startswith('RANKSCOPE')), os.environ.get('PYTHONPATH')]), flush=True)"
)


@pytest.fixture
def again(tmp_path):
    """What the processes say that a script starts or becomes: SAYS is their program."""

    def again(script: str, **more: str) -> list[list]:
        (tmp_path / "says.py").write_text(SAYS)
        words = f"PY, SAYS = {sys.executable!r}, [{sys.executable!r}, {str(tmp_path / 'says.py')!r}]\n"
        (tmp_path / "script.py").write_text("import os, subprocess, sys\n" + words + SAYS + "\n" + script)
        environment = {"RANK": "0", "WORLD_SIZE": "1", "RANKSCOPE_AGENT": "/no/spec", "PYTHONPATH": str(INJECT), **more}
        done = subprocess.run(
            [sys.executable, tmp_path / "script.py"], env=environment, capture_output=True, text=True, check=True
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    return again


@pytest.mark.parametrize(
    "call",
    [
        "os.execv(PY, SAYS)",
        "os.execl(PY, *SAYS)",
        "os.execvpe('python-of-this-test', SAYS, {**os.environ, 'PATH': '/nowhere:' + os.environ['LINKS']})",
        "os.execve(path=PY, argv=SAYS, env=os.environ)",
    ],
)
def test_what_a_rank_becomes_is_armed_as_the_rank_was(again, tmp_path, call):
    (tmp_path / "python-of-this-test").symlink_to(sys.executable)
    first, second = again(call, LINKS=str(tmp_path))
    assert first[1:] == [True, [], None]
    assert second == first  # one process, armed, and nothing of ours is left in its environment


def test_the_users_own_search_path_is_that_of_the_moment(again, tmp_path):
    script = "os.environ['PYTHONPATH'] += ':/more'; os.execv(PY, SAYS)"
    first, second = again(script, PYTHONPATH=f"{INJECT}:{tmp_path}", RANKSCOPE_PYTHONPATH=str(tmp_path))
    assert first[3] == str(tmp_path)
    assert second == [*first[:3], f"{tmp_path}:/more"]


def test_children_and_those_that_become_something_else_see_nothing(again):
    script = """
if os.fork() == 0:
    os.execv(PY, SAYS)
os.wait()
os.spawnv(os.P_WAIT, PY, SAYS)
subprocess.run(SAYS)
"""
    rank, *children = again(script)
    assert [child[1:] for child in children] == [[False, [], None]] * 3
    assert rank[0] not in [child[0] for child in children]


def test_one_that_fails_leaves_all_as_it_was(again):
    script = """
for call in (lambda: os.execv('/no/such', ['x']), lambda: os.execve(PY, [], os.environ), lambda: os.execv(PY, [])):
    try:
        call()
    except (OSError, ValueError) as error:
        print('"', type(error).__name__, '"', sep='', flush=True)
"""
    first, *errors, last = again(script + SAYS)
    assert errors == ["FileNotFoundError", "ValueError", "ValueError"]
    assert last == first


def test_one_that_is_switched_off_is_not_armed(again):
    first, second = again("os.environ['RANKSCOPE_DISABLE'] = '1'; os.execv(PY, SAYS)")
    assert (first[1], second[1:]) == (True, [False, ["RANKSCOPE_DISABLE"], None])
