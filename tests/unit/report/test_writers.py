"""Each writer with each hand-made report."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from rankscope.records.codec import from_json
from rankscope.records.report import ClusterReport
from rankscope.report import WRITERS, write_report
from rankscope.report.common import breakdown, plain_text
from rankscope.report.common import rounding as tidy
from rankscope.report.common import wording as words
from rankscope.report.formats import markdown, terminal
from rankscope.report.sections import table as sections

pytestmark = pytest.mark.data

CONTRACT = {"schema_version", "run", "ranks", "clock", "collectives", "verdict", "findings", "hta", "errors"}
RANK_KEYS = {
    *("rank", "host", "device", "status", "steps", "step_ms", "compute_pct", "comm_pct", "exposed_comm_pct"),
    *("overlap_pct", "memcpy_pct", "idle_pct", "wait_ms_per_step", "caused_wait_ms_per_step"),
}


class Page(HTMLParser):
    """Collects tags, attributes and text, and notes elements that do not nest."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.faults: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.text.append(data)

    def seen(self) -> str:
        """All that a reader can see, hover or hear."""
        spoken = [a[name] or "" for _, a in self.tags for name in ("title", "aria-label", "placeholder") if name in a]
        return "\n".join([*self.text, *spoken])


def page(report: ClusterReport) -> Page:
    return Page(WRITERS["html"](report))


def lines(report: ClusterReport) -> list[str]:
    return WRITERS["terminal"](report).splitlines()


# ---------------------------------------------------------------- JSON


def test_json_keeps_the_contract(any_report: ClusterReport) -> None:
    plain = json.loads(WRITERS["json"](any_report))
    assert plain.keys() >= CONTRACT
    for rank in plain["ranks"]:
        assert rank.keys() >= RANK_KEYS
        assert rank["step_ms"].keys() == {"median", "p95"}
        if rank["compute_pct"] is not None:
            assert sum(rank[name] for name in tidy.SHARES) == pytest.approx(100, abs=1e-9)


def test_json_can_be_read_back(any_report: ClusterReport) -> None:
    text = WRITERS["json"](any_report)
    assert WRITERS["json"](from_json(ClusterReport, text)) == text


def test_rounding_keeps_the_sum_of_a_rank(gpu_straggler: ClusterReport) -> None:
    rank = gpu_straggler.ranks[0]
    rank.compute_pct, rank.exposed_comm_pct, rank.memcpy_pct, rank.idle_pct = (100 / 3, 100 / 3, 100 / 6, 100 / 6)
    clean = tidy.tidy(gpu_straggler)
    shares = [getattr(clean.ranks[0], name) for name in tidy.SHARES]
    assert sum(round(share * 100) for share in shares) == 10_000
    assert rank.compute_pct == 100 / 3, "the input is left as it was"
    assert not clean.errors


def test_shares_that_do_not_sum_to_100_are_reported_not_hidden(gpu_straggler: ClusterReport) -> None:
    gpu_straggler.ranks[1].idle_pct = 40.0
    plain = json.loads(WRITERS["json"](gpu_straggler))
    assert plain["ranks"][1]["idle_pct"] == 40.0
    assert "rank 1" in plain["errors"][0]["message"]


def test_values_that_are_not_finite_are_left_out_and_named(gpu_straggler: ClusterReport) -> None:
    gpu_straggler.groups[0].bus_gb_s = float("inf")
    gpu_straggler.verdict.cost_error_ms = float("nan")
    plain = json.loads(WRITERS["json"](gpu_straggler))
    assert plain["groups"][0]["bus_gb_s"] is None
    assert "groups.bus_gb_s" in plain["errors"][0]["message"]
    for name in WRITERS:
        assert WRITERS[name](gpu_straggler)


# ---------------------------------------------------------------- files


def test_write_report_leaves_three_complete_files(any_report: ClusterReport, tmp_path: Path) -> None:
    written = write_report(any_report, tmp_path / "report")
    assert {name: path.name for name, path in written.items()} == {
        "json": "report.json",
        "markdown": "report.md",
        "html": "report.html",
    }
    assert sorted(p.name for p in (tmp_path / "report").iterdir()) == ["report.html", "report.json", "report.md"]
    assert written["html"].read_text(encoding="utf-8").endswith("</html>\n")


def test_an_interrupted_write_leaves_the_older_file(
    gpu_straggler: ClusterReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.json").write_text("older")

    def fail(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("rankscope.rundir.files.os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_report(gpu_straggler, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]
    assert (tmp_path / "report.json").read_text() == "older"


# ---------------------------------------------------------------- HTML


def test_page_is_well_formed_and_loads_nothing(any_report: ClusterReport) -> None:
    text = WRITERS["html"](any_report)
    parsed = Page(text)
    assert not parsed.faults
    assert not parsed.open
    for tag, attributes in parsed.tags:
        assert tag not in {"iframe", "object", "embed", "img", "base", "form"}
        assert not [name for name in attributes if name.startswith("on") or name in {"style", "src", "srcset"}]
        href = attributes.get("href")
        assert href is None or href.startswith("#") or href == "data:,"
    assert not re.search(r"""(url\(|@import|=)\s*["']?\s*(https?:)?//""", text)
    assert "http://" not in text
    assert "https://" not in text


def test_policy_allows_only_what_the_page_holds(gpu_straggler: ClusterReport) -> None:
    policies = [a["content"] for tag, a in page(gpu_straggler).tags if a.get("http-equiv")]
    assert len(policies) == 1
    assert policies[0] is not None
    assert policies[0].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policies[0]


def test_every_link_has_its_target_and_every_id_is_unique(any_report: ClusterReport) -> None:
    parsed = page(any_report)
    ids = [a["id"] for _, a in parsed.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    links = {a["href"] for tag, a in parsed.tags if tag == "a"}
    known = {f"#{rank.rank}" for rank in any_report.ranks}
    assert {link for link in links if link and link[1:] not in ids} - known == set()


def test_page_begins_with_the_verdict(any_report: ClusterReport) -> None:
    text = "\n".join(page(any_report).text)
    places = [
        text.index(plain_text.keep_units(words.sentence(any_report.verdict))),
        text.index("Why"),
        text.index("Next"),
    ]
    assert places == sorted(places)


def test_the_cost_is_reported_in_all_three_units_everywhere(gpu_straggler: ClusterReport) -> None:
    gpu_straggler.verdict.share_of_steps_pct = 83.4
    for name in ("terminal", "markdown"):
        head = " ".join(WRITERS[name](gpu_straggler).partition("  rank ")[0].split())
        assert "60.3 ± 1.9 ms" in head
        assert "54 %" in head
    head = " ".join(page(gpu_straggler).seen().partition("Why")[0].split())
    assert "Share of the step 54 %" in head
    assert "Steps that lose time 83 %" in head


def test_what_has_no_cost_claims_no_share_of_steps(cpu_balanced: ClusterReport) -> None:
    for name in ("terminal", "markdown"):
        assert "of the steps" not in WRITERS[name](cpu_balanced)
    assert "Steps that lose time" not in page(cpu_balanced).seen().partition("Why")[0]


def test_findings_say_what_you_would_gain_if_it_is_known(gpu_straggler: ClusterReport) -> None:
    seen = page(gpu_straggler).seen()
    assert "Also seen, costs less than 1 % of a step today: Gradient all-reduce is hidden" in seen
    assert "What you would gain" not in seen, "its own cost is not known; the actions have their bounds"
    anchors = [a["id"] for tag, a in page(gpu_straggler).tags if tag == "article"]
    assert anchors == ["finding-profiler-cost"], "the verdict is no finding of its own, and what costs nothing no card"


def test_a_run_without_accelerator_does_not_talk_about_one(cpu_balanced: ClusterReport) -> None:
    seen = page(cpu_balanced).seen()
    assert not re.search(r"\bGPUs?\b|CUDA|NVLink", seen)
    assert "Operators" in seen
    assert "Kernels" not in [line.strip() for line in seen.splitlines()]
    for name in ("terminal", "markdown"):
        assert not re.search(r"\bGPUs?\b|\bkernels?\b|\bdevices?\b", WRITERS[name](cpu_balanced), re.IGNORECASE)


def test_page_says_what_is_missing(nothing_usable: ClusterReport) -> None:
    seen = page(nothing_usable).seen()
    for text in ("rank 2 left no trace", "gzip stream ends early", "hta.temporal_breakdown", "names no rank"):
        assert text in seen


def test_64_ranks_stay_small_and_the_named_rank_comes_first(many_ranks: ClusterReport) -> None:
    text = WRITERS["html"](many_ranks)
    assert len(text.encode()) < 600_000
    bars = text[text.index('<div class="bars">') : text.index('id="idle"')]
    assert "▲" in bars
    assert re.findall(r'class="who[^>]*>(?:<span[^>]*>▲ </span>)?([^<]*)<', bars) == ["rank 37", "63 others"]


def test_a_thousand_ranks_stay_below_two_megabytes(many_ranks: ClusterReport) -> None:
    rank, rows = many_ranks.ranks[0], many_ranks.steps[:40]
    copy = type(rank)
    many_ranks.ranks = [copy(**(vars(rank) | {"rank": number})) for number in range(1024)]
    many_ranks.steps = [type(row)(**(vars(row) | {"rank": n})) for n in range(1024) for row in rows]
    many_ranks.idle = [type(row)(**(vars(row) | {"rank": n})) for n in range(1024) for row in many_ranks.idle[:1]]
    text = WRITERS["html"](many_ranks)
    assert len(text.encode()) < 2_000_000
    assert text.count("<tr") < 600, "rows beyond the first hundred of a table are made by the script"


def test_hover_text_agrees_with_the_document(gpu_straggler: ClusterReport) -> None:
    document = Path(__file__).parents[3] / "docs" / "metrics.md"
    assert document.read_text(encoding="utf-8") == sections.as_markdown()
    text = sections.as_markdown()
    for metric in sections.METRICS.values():
        assert metric.definition in text
    titles = [a["title"] for _, a in page(gpu_straggler).tags if (a.get("title") or "").startswith("[")]
    assert len(titles) > 20
    assert all(sections.METRICS["compute_pct"].definition in (t or "") for t in titles if t and "computes." in t)


@pytest.mark.parametrize("idle", [True, False])
def test_the_bar_agrees_with_the_table(gpu_straggler: ClusterReport, idle: bool) -> None:
    for rank, row in zip(gpu_straggler.ranks, gpu_straggler.idle, strict=True):
        bar = breakdown.segments(rank, row if idle else None)
        width = {part.key: part.pct for part in bar}
        assert sum(width.values()) == pytest.approx(100, abs=0.01)
        exposed = width.get("waiting", 0) + width.get("transfer", 0) + width.get("comm", 0)
        assert exposed == pytest.approx(rank.exposed_comm_pct, abs=0.01)


# ---------------------------------------------------------------- terminal


def test_terminal_begins_with_the_verdict_and_fits(any_report: ClusterReport) -> None:
    found = lines(any_report)
    assert found[0].startswith("Verdict  ")
    labels = [line.split()[0] for line in found if line[:1].strip() and not line.startswith(">")]
    assert labels[:3] == ["Verdict", "Why", "Next"]
    assert len(found) <= terminal.MAX_LINES
    assert max(map(len, found)) <= 80
    assert "\x1b" not in "\n".join(found)


GOLDEN = """\
Verdict  No rank holds the others back.
Why      The largest mean lateness is 0.4 ms, within the noise of 0.9 ms.
Next     81 % of the time is compute: look at the operators if a step should be
         faster.
Sure     medium confidence

  rank    host  where a step of 40.2 ms goes
     0  laptop  █████████████████████████████████████████████████▞▞▞▞▞▞▞╌╌╌╌
     1  laptop  █████████████████████████████████████████████████▞▞▞▞▞▞▞╌╌╌╌
  █ compute  ▞ waiting and transfer  ╌ idle

Trust    clocks by host clock (error unknown), 100.0 % of 36 collectives matched
         (by order)
"""


def test_golden_terminal(cpu_balanced: ClusterReport) -> None:
    assert WRITERS["terminal"](cpu_balanced) == GOLDEN


def test_many_ranks_are_the_one_that_is_named_and_all_others_as_one(many_ranks: ClusterReport) -> None:
    table = WRITERS["terminal"](many_ranks).split("\n\n")[1].splitlines()
    first = [line.split()[:2] for line in table]
    assert ["rank", "host"] in first
    assert [">", "37"] in first
    assert ["63", "others"] in first


def test_missing_ranks_take_one_line_and_nobodys_place(many_ranks: ClusterReport) -> None:
    for rank in many_ranks.ranks[:30]:
        rank.status, rank.reason, rank.compute_pct = "missing", "its folder was not shared", None
    table = WRITERS["terminal"](many_ranks).split("\n\n")[1]
    assert "33 others" in table
    assert re.search(r"^ +30 ranks .*missing: its folder was not shared$", table, re.M)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (38.4, 7.7, "38 ± 8 ms"),
        (60.31, 1.94, "60.3 ± 1.9 ms"),
        (2.44, 0.31, "2.4 ± 0.3 ms"),
        (412.0, 13.2, "412 ± 13 ms"),
        (0.5, 0.0, "0.50 ± 0 ms"),
        (12.0, None, "12.0 ms"),
        (None, None, words.DASH),
    ],
)
def test_a_cost_and_its_error_end_at_the_same_digit(value: float | None, error: float | None, text: str) -> None:
    assert words.plus_minus(value, error) == text


def test_terminal_fits_even_when_everything_is_long(many_ranks: ClusterReport, nothing_usable: ClusterReport) -> None:
    report = many_ranks
    report.verdict.sentence = "word " * 400
    report.verdict.why = ["word " * 200] * 9
    report.verdict.next = ["word " * 200] * 9
    report.errors = nothing_usable.errors * 50
    report.run.notes = ["note " * 100] * 20
    for width in (40, 60, 80, 100, 200):
        console = Console(file=io.StringIO(), width=width, color_system=None)
        found = terminal.lines(report, console, "/somewhere/report.html")
        assert len(found) <= terminal.MAX_LINES
        assert max(line.cell_len for line in found[:-1]) <= width
        assert found[-1].plain == "Report   /somewhere/report.html"


def test_colour_only_where_it_is_wanted(gpu_straggler: ClusterReport, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(**options: object) -> str:
        stream = io.StringIO()
        terminal.show(gpu_straggler, Console(file=stream, width=100, **options), "report.html")  # type: ignore[arg-type]
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = shown()
    assert "\x1b[" in shown(force_terminal=True, color_system="standard")
    assert "\x1b[" not in plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", shown(force_terminal=True, color_system="standard"))


def test_ascii_terminals_get_ascii(gpu_straggler: ClusterReport) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal.show(gpu_straggler, Console(file=stream, width=100, color_system=None))
    stream.flush()
    stream.seek(0)
    assert "#####" in stream.read()


# ---------------------------------------------------------------- Markdown


def test_markdown_fits_a_comment_and_begins_with_the_verdict(any_report: ClusterReport) -> None:
    text = WRITERS["markdown"](any_report)
    assert text.startswith("**Verdict:** ")
    assert len(text) < markdown.MAX_CHARACTERS
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a|b", "a\\|b"),
        ("`rm`", "\\`rm\\`"),
        ("two\nlines\r\n| x |", "two lines \\| x \\|"),
        ("<script>", "\\<script\\>"),
        ("[x](y)", "\\[x\\](y)"),
        ("ping @someone", "ping @\u200bsomeone"),
        ("\x1b[31mred", "\u241b\\[31mred"),
    ],
)
def test_markdown_escapes(text: str, expected: str) -> None:
    assert markdown.escape(text) == expected


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("void at::native::foo<4, c10::BFloat16>(int, float*)", "foo<4, BFloat16>"),
        ("nvjet_tst_128x256_64x4", "nvjet_tst_128x256_64x4"),
        ("(anonymous)", "(anonymous)"),
        ("", "(no name)"),
    ],
)
def test_kernel_names_stay_readable(name: str, text: str) -> None:
    assert plain_text.short_name(name) == text
    assert len(plain_text.short_name(name * 5000)) <= 88
