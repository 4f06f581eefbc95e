"""A difference in every format, and the verbs that print it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.cli import main
from rankscope.compare.compare import compare
from rankscope.compare.show import DIFF_WRITERS
from rankscope.compare.show.wording import amount, short
from rankscope.records.codec import from_json
from rankscope.records.diff import RunDiff
from rankscope.report.formats.json import schema

from .conftest import DATA

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def diffs(real) -> list[RunDiff]:
    return [compare(real("ddp_dataloader_stall"), real(name)) for name in ("ddp_healthy", "ddp_slow_gpu")]


def test_json_is_what_its_schema_says(diffs: list[RunDiff]) -> None:
    text = DIFF_WRITERS["json"](diffs[:1])
    import jsonschema  # its import takes a second or two, and every worker collects this file

    jsonschema.validate(json.loads(text), schema("diff"))
    assert from_json(RunDiff, text).verdict == "faster"
    assert [one["verdict"] for one in json.loads(DIFF_WRITERS["json"](diffs))] == ["faster", "faster"]


def test_the_terminal_shows_difference_and_reason_in_80_columns(diffs: list[RunDiff]) -> None:
    text = DIFF_WRITERS["terminal"](diffs[:1])
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("Faster         ddp_dataloader_stall -> ddp_healthy\n")
    assert re.search(r"Because +-60\.\d ms  work of the host: -6\d\.\d ms a step on rank 1", text)
    assert re.search(r"~  not explained", text)
    assert "Promised" in text


def test_several_runs_begin_with_a_table(diffs: list[RunDiff]) -> None:
    lines = DIFF_WRITERS["terminal"](diffs).splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["ddp_dataloader_stall", "ddp_healthy", "ddp_slow_gpu"]
    assert lines[1].endswith("faster")


def test_markdown_is_short_and_plain(diffs: list[RunDiff]) -> None:
    text = DIFF_WRITERS["markdown"](diffs[1:])
    assert len(text.splitlines()) < 60
    assert text.startswith("**Faster**: step ")
    assert "aten::mm \\[4096,4096\\]x\\[4096,4096\\]" in text


def test_markdown_of_strange_names_notifies_nobody_and_fits_a_comment(diffs: list[RunDiff]) -> None:
    strange = replace(diffs[0].step, kind="kernel", name="x@me #12 <b>`|", detail="&lt;", told=True, ranks=[])
    diff = replace(diffs[0], rows=[strange], before=replace(diffs[0].before, name="a`b\nc"))
    text = DIFF_WRITERS["markdown"]([diff])
    assert "x@&#8203;me #&#8203;12 \\<b\\>\\`\\|; &amp;lt;" in text
    assert "`a'b c` -> `ddp_healthy`" in text
    many = [replace(diff, rows=[replace(strange, name="n" * 5000)])] * 20
    cut = DIFF_WRITERS["markdown"](many)
    assert len(cut) < 65_536
    assert cut.endswith("`--format html` has all of it.\n")


def test_the_page_needs_nothing_from_elsewhere(diffs: list[RunDiff]) -> None:
    page = DIFF_WRITERS["html"](diffs)
    assert "http" not in page
    assert "<script" not in page
    assert page.count("<h1") == 2


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("aten::mm [[8, 4], [4, 2]]", "aten::mm [8,4]x[4,2]"),
        ("aten::cat [[[8, 4], [4, 2]], []]", "aten::cat [8,4]x[4,2]"),
        ("aten::add [[], []]", "aten::add"),
        ("aten::f [[1], [2], [3], [4]]", "aten::f [1]x[2]x[3] ..."),
        ("gemm", "gemm"),
    ],
)
def test_shapes_are_shown_short(name: str, shown: str) -> None:
    assert short(name) == shown


def test_amounts() -> None:
    assert [amount(v, u) for v, u in ((1536, "bytes"), (0.25, "ms"), (12.34, "ms"), (1411, "count"), (None, "ms"))] == [
        "1.5 KiB",
        "0.25 ms",
        "12.3 ms",
        "1,411",
        "?",
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["check", "SLOW", "--fail-if", "slow_rank"], 10, "FAIL  slow_rank"),
        (["check", "HEALTHY", "--fail-if", "slow_rank", "--format", "markdown"], 0, "No condition holds: `slow_rank`"),
        (["check", "HEALTHY", "--fail-if", "memory > 60 GiB"], 11, "UNDECIDED  memory > 60 GiB"),
        (["check", "HEALTHY", "--fail-if", "memory > 60 GiB", "--undecided-ok"], 0, "UNDECIDED"),
        (["check", "HEALTHY", "--fail-if", "slower > 1 %"], 2, ""),
        (["check", "HEALTHY"], 2, ""),
        (["check", "nowhere", "--fail-if", "slow_rank"], 2, ""),
        (["diff", "HEALTHY"], 2, ""),
        (["baseline", "show"], 2, ""),
    ],
)
def test_exit_codes(words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"SLOW": "ddp_slow_gpu", "HEALTHY": "ddp_healthy"}
    assert main([str(DATA / names[word]) if word in names else word for word in words]) == code
    assert said in capsys.readouterr().out


def test_from_baseline_to_gate(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of the workflow in docs/guide/compare.md."""
    store, summary = str(tmp_path / "store"), tmp_path / "summary.md"
    monkeypatch.setenv("RANKSCOPE_BASELINES", store)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert main(["baseline", "set", "gpt", str(DATA / "ddp_healthy")]) == 0
    assert main(["baseline", "list"]) == 0
    assert capsys.readouterr().out == "gpt  1 run\n"
    words = ["--against", "baseline:gpt", "--fail-if", "slower > 5 %, launches > 0", "--format", "github"]
    assert main(["check", str(DATA / "ddp_healthy"), *words]) == 0
    assert main(["check", str(DATA / "ddp_slow_gpu"), *words]) == 10
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "::notice title=rankscope::no condition holds"
    assert "::error title=rankscope%3A launches > 0::launches: 660 -> 1,411 a step on rank 1" in out
    assert "- Fails: `slower > 5 %`" in summary.read_text()
    page = tmp_path / "diff.html"
    assert main(["diff", "baseline:gpt", str(DATA / "ddp_slow_gpu"), "--output", str(page), "--exit-code"]) == 10
    assert "work of the device" in page.read_text()
    assert main(["baseline", "show", "gpt", "--output", str(tmp_path / "h.html")]) == 0
    assert "Baseline gpt: 1 run," in capsys.readouterr().out
