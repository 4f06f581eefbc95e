"""Typography of reports: units stay with numbers, titles are not cut, identifiers, use of colour."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from rankscope.records.report import ClusterReport, Finding
from rankscope.report import TIMELINE, WRITERS, link_timeline, write_report
from rankscope.report.common import plain_text
from rankscope.report.common import wording as words
from rankscope.report.formats import html, terminal
from support.diagnosing import ADVICE
from support.terminal import on_a_terminal

pytestmark = pytest.mark.data


def shown(report: ClusterReport, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    return [line.plain for line in terminal.lines(report, console)]


@pytest.mark.parametrize(
    "text", ["it costs 60 ms of each 103 ms step (58 %) at 12.3 GB/s", "60.3 ± 1.9 ms, 4 µs, 9 us, 2 s"]
)
def test_no_line_begins_with_a_unit(text: str, gpu_straggler: ClusterReport) -> None:
    gpu_straggler.verdict.sentence = gpu_straggler.verdict.why[0] = text
    for width in range(40, 110):
        for line in shown(gpu_straggler, width):
            assert line.strip().split(" ")[0] not in {"ms", "%)", "%", "ms,", "µs,", "us,", "s", "GB/s", "±"}, (
                width,
                line,
            )
            assert "\ue000" not in line


def test_units_in_the_page_stay_with_their_number(gpu_straggler: ClusterReport) -> None:
    gpu_straggler.verdict.why[0] = "It costs 60 ms (58 %), 5 samples."
    page = html.render(gpu_straggler)
    assert "It costs 60\N{NO-BREAK SPACE}ms (58\N{NO-BREAK SPACE}%), 5 samples." in page


def test_a_title_is_cut_at_its_end(gpu_straggler: ClusterReport) -> None:
    title = "Rank 3 copies from pageable memory " + "again and again " * 40 + "END"
    gpu_straggler.findings = [
        Finding(
            id="x",
            kind="other",
            ranks=[3],
            cost_ms_per_step=None,
            confidence="low",
            title=title,
            evidence=[],
            advice=[],
        )
    ]
    for text in (WRITERS["terminal"](gpu_straggler), WRITERS["markdown"](gpu_straggler)):
        assert "Rank 3 copies from pageable memory again and again" in text
        assert "…" in text
        assert "END" not in text


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two…"),
        ("one two, three", 10, "one two…"),
        ("x" * 20, 10, "x" * 9 + "…"),
        ("a\n b\x1b", 99, "a b␛"),
    ],
)
def test_prose_is_cut_between_words(text: str, limit: int, expected: str) -> None:
    assert plain_text.prose(text, limit) == expected


def test_causes_are_words_everywhere(gpu_straggler: ClusterReport) -> None:
    for cause in sorted({*ADVICE, "never_heard_of"}):
        assert "_" not in words.cause(cause)
        gpu_straggler.verdict.cause = cause
        gpu_straggler.findings = [
            Finding(
                id="f", kind=cause, ranks=[], cost_ms_per_step=None, confidence="low", title="", evidence=[], advice=[]
            )
        ]
        for form in ("terminal", "markdown", "html"):
            text = WRITERS[form](gpu_straggler)
            assert "_" not in cause or not re.search(rf"\b{cause}\b", text)  # cpu_throttled_pct is a number's key


def test_the_page_links_a_timeline_only_where_there_is_one(gpu_straggler: ClusterReport, tmp_path: Path) -> None:
    page = write_report(gpu_straggler, tmp_path)["html"]
    assert TIMELINE not in page.read_text()
    (tmp_path / TIMELINE).touch()
    link_timeline(tmp_path)
    assert f'href="{TIMELINE}"' in page.read_text()
    (tmp_path / TIMELINE).unlink()
    assert TIMELINE not in write_report(gpu_straggler, tmp_path)["html"].read_text()


@pytest.mark.parametrize("text", [None, "", "[]", "{}"])
def test_without_a_report_there_is_nothing_to_link(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "report.json").write_text(text)
    link_timeline(tmp_path)
    assert not (tmp_path / "report.html").exists()


def reported(report: Path, **more: str) -> str:
    """What ``rankscope report`` writes to a terminal of 80 columns."""
    words = [sys.executable, "-m", "rankscope", "report", str(report)]
    text, _, code = on_a_terminal(words, "stdout", **{"TERM": "xterm-256color", "COLUMNS": "80", **more})
    assert code == 0
    return text


@pytest.mark.process
def test_colour_on_a_terminal_and_nowhere_else(gpu_straggler: ClusterReport, tmp_path: Path) -> None:
    write_report(gpu_straggler, tmp_path)
    assert "\x1b[1;31m" in reported(tmp_path)
    without = reported(tmp_path, NO_COLOR="1")
    assert "Verdict" in without
    assert "\x1b[1;31m" not in without
    words = [sys.executable, "-m", "rankscope", "report", str(tmp_path)]
    environment = {**os.environ, "COLUMNS": "61"}
    piped = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout
    assert piped == terminal.render(gpu_straggler, 61)


@pytest.mark.parametrize(
    "form", ["terminal", "html", *(pytest.param(f, marks=pytest.mark.long) for f in ("json", "markdown"))]
)
def test_a_terminal_without_our_letters_gets_all_the_same(
    form: str, gpu_straggler: ClusterReport, tmp_path: Path
) -> None:
    write_report(gpu_straggler, tmp_path)
    words = [sys.executable, "-m", "rankscope", "report", str(tmp_path), "--format", form]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    done = subprocess.run(words, capture_output=True, check=True, env=environment)
    encoding = "ascii" if form == "terminal" else "utf-8"
    shown = done.stdout.decode(encoding)
    assert "60.3 +- 1.9 ms" in shown if form == "terminal" else "Rank 1 holds" in shown


def test_a_folder_that_cannot_be_written_is_one_line(gpu_straggler: ClusterReport, tmp_path: Path) -> None:
    write_report(gpu_straggler, tmp_path)
    (tmp_path / "file").touch()
    words = [sys.executable, "-m", "rankscope", "report", str(tmp_path), "--output", str(tmp_path / "file" / "x")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"rankscope: error: {tmp_path / 'file' / 'x'} cannot be written")


def test_only_the_labels_are_bold(gpu_straggler: ClusterReport) -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    found = {line.plain.split()[0]: line for line in terminal.lines(gpu_straggler, console) if line.plain[:1].strip()}
    why = found["Why"]
    assert [(span.start, span.end, str(span.style)) for span in why.spans if "bold" in str(span.style)] == [
        (0, 9, "bold")
    ]
    assert str(why.style) == ""
