"""Selections that a user can make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.errors import ConfigError, RunDirError
from rankscope.rundir.layout import RunDir
from rankscope.timeline.json_lines import us
from rankscope.timeline.output import choose_output, report_folder
from rankscope.timeline.selection import parse_categories, parse_ranks, parse_steps
from rankscope.timeline.tracks import lanes
from rankscope.trace.columns import Category


def test_words_to_numbers() -> None:
    assert parse_steps("13-15") == (13, 15)
    assert parse_steps(" 13 ") == (13, 13)
    assert parse_ranks("0,3") == {0, 3}
    assert parse_ranks("0-2, 7") == {0, 1, 2, 7}
    assert parse_categories("kernel, CPU_OP") == {Category.KERNEL, Category.CPU_OP}


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "5-3", "1,2", "1-2-3"])
def test_steps_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--steps"):
        parse_steps(text)


@pytest.mark.parametrize("text", ["", "a", "1,", "3-1", "1;2", "-1"])
def test_ranks_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--ranks"):
        parse_ranks(text)


@pytest.mark.parametrize("text", ["", "kernels", "kernel,nothing"])
def test_categories_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"cpu_op.*kernel"):
        parse_categories(text)


def test_where_it_goes(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    own = run.report / "cluster.trace.json.gz"
    with pytest.raises(ConfigError, match="is empty: it holds no traces to merge"):
        choose_output(run, None)
    (run.path / "rank_0.json").touch()
    with pytest.raises(ConfigError, match="--output"):
        choose_output(run, None)
    assert choose_output(run, tmp_path / "x.json.gz") == (tmp_path / "x.json.gz", False)
    run.manifest.write_text("{}")
    assert choose_output(run, None) == (own, True)
    assert choose_output(run, run.path / "." / "report" / own.name) == (own, True)
    with pytest.raises(ConfigError, match="rank's trace"):
        choose_output(run, run.path / "x.json.gz")
    with pytest.raises(ConfigError, match="is a folder"):
        choose_output(run, tmp_path)


def test_where_a_report_lies(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"is empty.*name a run directory"):
        report_folder(tmp_path)
    (tmp_path / "rank_0.json").touch()
    with pytest.raises(RunDirError, match="rankscope analyze"):
        report_folder(tmp_path)
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "cluster.trace.json.gz").touch()
    assert report_folder(tmp_path) == report_folder(folder) == folder


@given(st.integers(-(10**15), 10**15))
def test_microseconds_are_exact(ns: int) -> None:
    assert round(float(us(ns)) * 1000) == ns


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=40))
def test_slices_of_a_lane_nest(spans: list[tuple[int, int]]) -> None:
    ordered = sorted((start, start + length) for start, length in spans)
    ordered.sort(key=lambda s: (s[0], -s[1]))
    start, end = (np.array([s[i] for s in ordered], np.int64) for i in range(2))
    lane = lanes(start, end)
    for number in set(lane.tolist()):
        mine = [s for s, n in zip(ordered, lane.tolist(), strict=True) if n == number]
        for i, (a, b) in enumerate(mine):
            for c, d in mine[i + 1 :]:
                assert c >= b or d <= b, ((a, b), (c, d))
    if not any(a < c < b < d for a, b in ordered for c, d in ordered):
        assert set(lane.tolist()) <= {0}


@pytest.mark.process
def test_the_timeline_knows_no_job() -> None:
    code = (
        "import importlib, pkgutil, sys, rankscope.timeline as t\n"
        "for m in pkgutil.iter_modules(t.__path__): importlib.import_module(f'rankscope.timeline.{m.name}')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    seen = set(done.stdout.split())
    for name in ("launcher", "agent", "node", "report", "compose", "cli"):
        assert f"rankscope.{name}" not in seen
    assert not seen & {"torch", "hta", "hydra", "rich", "jinja2"}
