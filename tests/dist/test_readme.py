"""The commands of README.md, unchanged, with a script of a new user."""

from __future__ import annotations

import itertools
import re
import shlex
import sys
from pathlib import Path

import pytest

from rankscope.rundir.layout import RunDir
from support.launching import JOBS, must_tell

README = (Path(__file__).parents[2] / "README.md").read_text()

TRAIN = """
import runpy, sys
sys.argv = [{job!r}, "--bad-rank", "1", "--input-ms", "50"]
runpy.run_path({job!r}, run_name="__main__")
"""


def commands(*wanted: str) -> list[list[str]]:
    """The README's command lines that begin so, without their comments, on two ranks instead of eight."""
    lines = README.replace("\\\n", " ").splitlines()
    found = [line for line in lines if any(line.startswith(w) for w in wanted)]
    assert found, f"README shows no {wanted}"
    return [shlex.split(line, comments=True) for line in found]


@pytest.fixture
def here(tmp_path):
    """The user's folder: a training script and a configuration of their own."""
    (tmp_path / "train.py").write_text(TRAIN.format(job=str(JOBS / "train.py")))
    (tmp_path / "my_conf" / "experiment").mkdir(parents=True)
    (tmp_path / "my_conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nschedule:\n  skip_first: 3\n  active: 4\n"
    )
    return tmp_path


def start_words(words: list[str]) -> list[str]:
    assert words[0] == "rankscope"
    on_two_ranks = ["2" if before == "--nproc-per-node" else word for before, word in itertools.pairwise(words)]
    return [sys.executable, "-m", "rankscope", *on_two_ranks]


RUNS = [words for words in commands("rankscope run") if "--nnodes" not in words]
"""Those that fit one machine."""


def reported(words, run, start, finish):
    done = finish(start(start_words(words)), run)
    assert done.code == 0, done.stderr
    assert f"Report: {run / 'report' / 'report.html'}" in done.stderr


pytestmark = pytest.mark.forked
QUICK = "capture=full", "--config-dir"
"""The others take what these take, and more time."""


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=" ".join(words[2:-1]), marks=[] if set(words) & set(QUICK) else pytest.mark.long)
        for words in RUNS[1:]
    ],
)
def test_each_way_to_run_ends_with_a_report(words, here, start, finish):
    reported(words, here / "rankscope_runs" / "run_0001", start, finish)


def test_run_analyze_and_read(here, start, finish):
    reported(RUNS[0], here / "rankscope_runs" / "run_0001", start, finish)
    # the one after it, on its traces and on a copy of them as if they were somebody else's
    (here / "traces").mkdir()
    for rank in (0, 1):
        trace = RunDir(here / "rankscope_runs" / "run_0001").trace(0, 0, rank)
        (here / "traces" / f"rank_{rank}.json.gz").write_bytes(trace.read_bytes())
    for words in commands("rankscope analyze"):
        done = finish(start(start_words(words)))
        assert done.code == 0, done.stderr
        assert "rank 1" in done.stdout.lower() or '"ranks"' in done.stdout
    assert (here / "report" / "report.html").exists()
    # and the columns, as the README reads them
    snippet = re.search(r"```python\n(.*?)```", README, re.S)[1]
    done = finish(start([sys.executable, "-c", snippet]))
    assert "ProfilerStep" in done.stdout, done.stderr


def test_config_shows_the_plan(here, start, finish):
    plan, explained = commands("rankscope config")
    assert "schedule.active: 6" in finish(start(start_words(explained))).stdout
    done = finish(start(start_words(plan)))
    assert "steps 13 to 18, 22 to 27, 31 to 36 of every rank" in done.stdout  # cycles of 1 + 2 + 6 steps


@pytest.mark.long  # tests/dist/test_faults.py has the same fault, input_stall, with a shorter job
@pytest.mark.alone
def test_demo_names_the_planted_rank(here, start, finish):
    done = finish(start([sys.executable, "-m", "rankscope", "demo"]), here / "rankscope_runs" / "run_0001")
    assert done.code == 0
    must_tell(done.report, "straggler", [1], "input_stall")
