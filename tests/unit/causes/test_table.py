"""Every cause is complete, is in the table and the guide, and names a job that plants it."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

from rankscope import causes
from rankscope.causes.base import Cause
from rankscope.causes.table import OURS, as_markdown
from rankscope.demo.faults import FAULTS

ROOT = Path(__file__).parents[3]
NOT_PLANTED = {"launch_bound", "unexplained"}
BASE = {"base", "table", "wording"}


def test_each_file_of_the_folder_is_in_the_table_once() -> None:
    files = {m.name for m in pkgutil.iter_modules(causes.__path__)} - BASE
    assert sorted(cause.name for cause in OURS) == sorted(files)
    for name in files:
        assert import_module(f"rankscope.causes.{name}").CAUSE in OURS


def test_the_guide_holds_the_table() -> None:
    assert as_markdown() in (ROOT / "docs" / "guide" / "slow-rank.md").read_text()


@pytest.mark.parametrize("cause", OURS, ids=lambda c: c.name)
def test_a_cause_can_be_planted(cause: Cause) -> None:
    where, _, name = cause.planted_by.partition(": ")
    if where == "demo":
        assert FAULTS[name].cause == cause.name
    elif where == "benchmarks":
        assert re.search(rf'"{name}"', (ROOT / "benchmarks" / "faults.py").read_text())
    else:
        assert cause.name in NOT_PLANTED


def test_a_cause_has_whole_sentences() -> None:
    good = {"name": "x", "phrase": "it waits", "noun": "waiting", "advice": ("Wait less.",)}
    good |= {"first_try": "", "needs": (), "planted_by": ""}
    Cause(**good)
    for bad in ({"phrase": "it waits."}, {"advice": ()}, {"advice": ("wait less",)}):
        with pytest.raises(ValueError, match="x: "):
            Cause(**{**good, **bad})
