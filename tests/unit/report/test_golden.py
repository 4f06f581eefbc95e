"""Every kind of verdict on a terminal and on the first screen of the page.

The files of tests/golden are read by reviewers; to write them anew::

GOLDEN=write python -m pytest tests/unit/report/test_golden.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rankscope.causes.table import OURS
from rankscope.report.common import plain_text
from rankscope.report.formats import html, markdown, terminal
from support.verdict_kinds import KINDS, page_of, report_of, shown

GOLDEN = Path(__file__).parents[2] / "golden"
PRIVATE = ("pulse", "starved", "outstanding", "segment", "mended", "evening out", "own cost")
"""Words of ours that no reader knows (the glossary has those that one needs)."""


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Kind -> its page."""
    return {name: html.render(report_of(case)) for name, case in KINDS.items()}


def as_written(file: str, found: str) -> str:
    """What a golden file holds, which is written first where that is asked for."""
    if os.environ.get("GOLDEN") == "write":
        (GOLDEN / file).write_text(found, encoding="utf-8")
    return (GOLDEN / file).read_text(encoding="utf-8")


def test_each_kind_reads_as_it_did() -> None:
    found = "\n".join(shown(name, case) for name, case in KINDS.items())
    assert found == as_written("verdicts.txt", found)


def test_each_page_reads_as_it_did(pages: dict[str, str]) -> None:
    found = "\n".join(page_of(name, page) for name, page in pages.items())
    assert found == as_written("pages.txt", found)


@pytest.mark.parametrize("name", KINDS)
def test_the_page_says_what_the_terminal_says(name: str, pages: dict[str, str]) -> None:
    report, page = report_of(KINDS[name]), pages[name]
    sentence = plain_text.keep_units(plain_text.prose(report.verdict.sentence, 600))
    assert sentence in page.replace("&#39;", "'").replace("&amp;", "&")
    flat = " ".join(terminal.render(report, 80).split())
    assert " ".join(report.verdict.sentence.split())[:60] in flat
    assert report.verdict.sentence in markdown.render(report).replace("\\", "").replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("name", KINDS)
def test_what_every_verdict_keeps(name: str) -> None:
    """One step time, in words that people know, something to do or the word that there is nothing, no identifier."""
    report = report_of(KINDS[name])
    verdict = report.verdict
    lines = [verdict.sentence, *verdict.why, *verdict.next]
    assert verdict.next, "says what to do, or that nothing is worth it"
    steps = {found for line in lines[:1] for found in re.findall(r"each ([\d.,]+ m?s) step", line)}
    assert len(steps) <= 1
    for line in lines:
        assert line.endswith((".", ")")), line
        assert not [word for word in PRIVATE if word in line.lower().replace("expandable_segments", "")], line
        assert not [cause.name for cause in OURS if "_" in cause.name and cause.name in line], line
        assert not re.search(r"(?<![\d.])0\.0 ms", line)
    gains = [action.saves_ms or 0.0 for action in report.actions if action.kind == "bound"]
    assert gains == sorted(gains, reverse=True), "most gain first"
    assert all(gain >= 0.01 * (KINDS[name].step_ms or 0.0) for gain in gains), "under one per cent nothing is advised"
    assert len(verdict.sentence) <= 260


def test_advice_is_not_circular() -> None:
    """What was recorded is not asked for, and what is in use is not advised."""
    stacks = report_of(KINDS["V1 one rank, its pause has a line"]).verdict
    assert "save() (train.py:88)" in stacks.next[0]
    assert not any("Record again with stacks" in line for line in stacks.next)
    compiled = report_of(KINDS["V4 bound by the GPU, without shapes"])
    assert [action.code for action in compiled.actions] == ["record_shapes"]
    on_cpu = report_of(KINDS["V1 one rank on a CPU"]).verdict
    assert not any("nvidia" in line or "-S capture=shapes" in line for line in on_cpu.next), "shapes are there"
    ddp = report_of(KINDS["V7 bound by communication, DDP"]).verdict
    assert not any("fully_shard" in line for line in ddp.next)
