"""The page in a real browser, from file:// and without a network. Skipped without chromedriver."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankscope.records.report import ClusterReport
from rankscope.report import write_report
from rankscope.report.common.wording import DASH
from support.browser import CHROME, DRIVER, Browser, browsing

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not (DRIVER and CHROME), reason="needs chromium and chromedriver"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Callable[[ClusterReport], Browser]:
    def opened(report: ClusterReport) -> Browser:
        browser.open(write_report(report, tmp_path)["html"])
        return browser

    return opened


def test_opens_without_complaint(any_report: ClusterReport, show: Callable[[ClusterReport], Browser]) -> None:
    browser = show(any_report)
    assert browser.complaints() == []
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


def test_a_phone_has_a_menu_of_all_sections(
    many_ranks: ClusterReport, show: Callable[[ClusterReport], Browser]
) -> None:
    browser = show(many_ranks)
    shown = (
        "return [...document.querySelectorAll('.top nav')].filter((nav) => nav.offsetWidth).map((nav) => nav.className)"
    )
    assert browser.run(shown) == ["row"]
    browser.resize(360, 780)
    assert browser.run(shown) == ["menu"]
    browser.run("document.querySelector('.menu summary').click()")
    edges = browser.run(
        "const b = document.querySelector('.menu ul').getBoundingClientRect(); return [b.left, b.right]"
    )
    assert 0 <= edges[0] < edges[1] <= 360
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    links = "[...document.querySelectorAll('.menu a')]"
    wanted = browser.run(f"const last = {links}.at(-1); last.click(); return last.hash")
    assert browser.run("return [location.hash, document.querySelector('.menu details').open]") == [wanted, False]
    browser.resize(1280, 1400)


def test_sorts_and_filters(many_ranks: ClusterReport, show: Callable[[ClusterReport], Browser]) -> None:
    browser = show(many_ranks)
    first = "return document.querySelector('#table-ranks tbody tr').id"
    last_head = "[...document.querySelectorAll('#table-ranks thead button')].at(-1)"
    assert browser.run(first) == "rank-37", "named by the verdict"
    browser.run("document.querySelector('#table-ranks thead button').click()")
    assert browser.run(first) == "rank-0"
    browser.run(f"{last_head}.click()")
    assert browser.run(first) == "rank-37", "makes others wait most"
    assert browser.run(f"return {last_head}.closest('th').getAttribute('aria-sort')") == "descending"
    browser.run(
        "const box = document.querySelector('[data-filter=ranks]'); box.value = 'node-4';"
        "box.dispatchEvent(new Event('input'))"
    )
    assert browser.run("return document.querySelector('[data-count=ranks]').textContent") == "8 of 64 rows"
    address = browser.run("return location.href")
    assert re.search(r"#table-ranks\?sort=\d+&order=down&filter=node-4$", address)
    browser.reload()
    assert browser.run("return document.querySelector('[data-count=ranks]').textContent") == "8 of 64 rows", "a link"
    assert browser.run(f"return {last_head}.closest('th').getAttribute('aria-sort')") == "descending"
    assert browser.complaints() == []


def test_rows_of_a_folded_table_are_made_when_it_is_opened(
    gpu_straggler: ClusterReport, show: Callable[[ClusterReport], Browser]
) -> None:
    gpu_straggler.hta = {"idle": {"0": [{"stream": 7, "ms": 1234.5}, {"stream": 20, "ms": 9.25}], "1": [{"ms": None}]}}
    browser = show(gpu_straggler)
    cells = (
        "return [...document.querySelector('#table-hta-0').tBodies[0].rows]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert browser.run(cells) == []
    browser.run("document.getElementById('hta').open = true")
    browser.wait_for("requestAnimationFrame(() => setTimeout(arguments[arguments.length - 1]))")
    assert browser.run(cells) == [["0", "7", "1,234.50"], ["0", "20", "9.25"], ["1", DASH, DASH]]
    browser.run("[...document.querySelectorAll('#table-hta-0 thead button')].at(-1).click()")
    assert [row[2] for row in browser.run(cells)] == ["1,234.50", "9.25", DASH], "as numbers; the unknown is last"
    browser.run("[...document.querySelectorAll('#table-hta-0 thead button')].at(-1).click()")
    assert [row[2] for row in browser.run(cells)] == ["9.25", "1,234.50", DASH]
    assert browser.complaints() == []


def test_heatmap_answers_to_keys(gpu_straggler: ClusterReport, show: Callable[[ClusterReport], Browser]) -> None:
    browser = show(gpu_straggler)
    press = "document.getElementById('heat-canvas').dispatchEvent(new KeyboardEvent('keydown', {{key: '{}'}}));"
    browser.run(press.format("ArrowDown") + press.format("ArrowDown") + press.format("ArrowRight"))
    read = "return document.getElementById('heat-read').textContent"
    first, _, split = browser.run(read).partition("Step of ")
    assert first == "rank 1, step 14: lateness 59.0 ms"
    assert split == "112.0 ms: compute 40.0, exposed communication 2.00, idle 62.0, copies and rest 8.00"
    browser.run("document.querySelectorAll('.segmented input')[1].click()")
    assert "step time" in browser.run(read)


BARS = "return [...document.querySelectorAll('#perstep-bars .bar')]"


def test_bars_of_a_rank_and_of_a_step(gpu_straggler: ClusterReport, show: Callable[[ClusterReport], Browser]) -> None:
    browser = show(gpu_straggler)
    spoken = BARS + ".map((bar) => bar.querySelector('svg').getAttribute('aria-label'))"
    assert browser.run(spoken)[1] == (
        "step 14: 112.0 ms: Compute 40.0 ms, Waiting and transfer 2.00 ms, Copies and rest 8.00 ms, Idle: host 62.0 ms"
    ), "the verdict's rank is chosen first; 112 = 40 + 2 + 62 + 8"
    assert len(browser.run(spoken)) == 6
    browser.run(
        "const choice = document.getElementById('perstep-of'); choice.value = 'step 1';"
        "choice.dispatchEvent(new Event('change'))"
    )
    assert browser.run(BARS + ".map((bar) => bar.querySelector('.who').textContent)") == ["rank 0", "▲ rank 1"]
    assert browser.run(spoken)[0].startswith("rank 0: 113.5 ms: Compute 40.0 ms")
    ends = browser.run(
        BARS + ".map((bar) => { const last = [...bar.querySelectorAll('rect')].at(-1);"
        "return parseFloat(last.getAttribute('x')) + parseFloat(last.getAttribute('width')) })"
    )
    assert ends[1] / ends[0] == pytest.approx(112.0 / 113.5, abs=0.001), "lengths are to scale"
    browser.run(
        "const map = document.getElementById('heat-canvas'), box = map.getBoundingClientRect();"
        "map.dispatchEvent(new MouseEvent('click', {clientX: box.left + 60, clientY: box.top + 5}))"
    )
    assert browser.run("return document.getElementById('perstep-of').value") == "rank 0", "a click chooses the rank"
    assert browser.complaints() == []


def test_waiting_for_input_is_split_off(gpu_straggler: ClusterReport, show: Callable[[ClusterReport], Browser]) -> None:
    for row in gpu_straggler.steps:
        row.input_ms = 60.5 if row.rank == 1 else 0.0
    browser = show(gpu_straggler)
    spoken = BARS + ".map((bar) => bar.querySelector('svg').getAttribute('aria-label'))"
    assert browser.run(spoken)[1] == (
        "step 14: 112.0 ms: Compute 40.0 ms, Waiting and transfer 2.00 ms, Copies and rest 8.00 ms, "
        "Idle: input 60.5 ms, Idle: host 1.50 ms"
    )
    metrics = browser.run("return [...document.querySelectorAll('.segmented label')].map((l) => l.textContent)")
    assert metrics[3:5] == ["Idle", "Idle: input"]
    browser.run("document.querySelectorAll('.segmented input')[4].click()")
    press = "document.getElementById('heat-canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}));"
    browser.run(press * 2)
    assert browser.run("return document.getElementById('heat-read').textContent") == (
        "rank 1, step 13: idle: input 60.5 ms"
        "Step of 113.0 ms: compute 40.0, exposed communication 2.00, idle 62.0 (input 60.5), copies and rest 9.00"
    )
    assert browser.complaints() == []


def test_copies_as_markdown(gpu_straggler: ClusterReport, show: Callable[[ClusterReport], Browser]) -> None:
    browser = show(gpu_straggler)
    browser.run(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (t) => { window.copied = t; }}})"
    )
    browser.run("document.querySelector('[data-copy-table=groups]').click()")
    lines = browser.run("return window.copied").splitlines()
    assert lines[0].startswith("| Group | Ranks | Collective | Type | Calls (per step) |")
    assert lines[1] == "| " + " | ".join(["---"] * 4 + ["---:"] * 8) + " |"
    assert lines[3].startswith("| dp\\_shard \\| tricky | 0, 1 | \\_allgather\\_base |")
    browser.run("document.querySelector('[data-copy-verdict]').click()")
    verdict = browser.run("return window.copied")
    assert verdict.startswith(
        "**Verdict:** Rank 1 holds up every step: 60.3 ± 1.9 ms of each 112 ms step (54 %). It waits for input.\n"
    )
    assert "*Cost: 60.3 ms / step ± 1.9; Share of the step: 54 %; Steps that lose time: 100 %;" in verdict
    assert "**Next**\n\n- Give rank 1's DataLoader more workers (num\\_workers is 0)" in verdict
    browser.run("document.querySelector('[data-copy-card]').click()")
    card = browser.run("return window.copied")
    assert card.startswith("### Recording made steps 41 % longer\n")
    assert "- Read shares, not absolute times, of host-bound steps" in card


@pytest.mark.long  # it measures times; what such a page weighs is in test_writers.py and test_page_size.py
def test_a_thousand_ranks_stay_interactive(many_ranks: ClusterReport, show: Callable[[ClusterReport], Browser]) -> None:
    rank, rows = many_ranks.ranks[0], many_ranks.steps[:20]
    many_ranks.ranks = [type(rank)(**(vars(rank) | {"rank": number})) for number in range(1024)]
    many_ranks.steps = [type(row)(**(vars(row) | {"rank": n})) for n in range(1024) for row in rows]
    browser = show(many_ranks)
    assert browser.complaints() == []
    # The quickest of a few: what else runs on this machine is not the page's doing.
    quickest = (
        "const times = []; for (let i = 0; i < 5; i++) { const start = performance.now(); {act};"
        "times.push(performance.now() - start) } return Math.min(...times)"
    )
    heat = (
        "document.querySelectorAll('.segmented input')[1 + i % 2].click();"
        "document.getElementById('heat-canvas').getContext('2d').getImageData(0, 0, 1, 1)"
    )
    assert browser.run(quickest.replace("{act}", heat)) < 1000
    bars = (
        "const choice = document.getElementById('perstep-of'); choice.value = 'step ' + i;"
        "choice.dispatchEvent(new Event('change')); document.body.offsetHeight"
    )
    assert browser.run(quickest.replace("{act}", bars)) < 1000
    assert browser.run(BARS + ".length") == 1024
    browser.complaints()  # of the many looks into the canvas, which only this test takes


# axe-core as the wheel axe-core-python carries it; installed with rankscope[test].
AXE = importlib.util.find_spec("axe_core_python")


@pytest.mark.skipif(AXE is None, reason="needs axe-core (pip install axe-core-python)")
@pytest.mark.parametrize(
    ("any_report", "scheme", "rules"),
    [*((name, "light", "undefined") for name in ("gpu_straggler", "cpu_balanced", "many_ranks", "nothing_usable")),
     *(pytest.param(name, "dark", "{runOnly: ['color-contrast']}", marks=[pytest.mark.long] * (name != "gpu_straggler"))
       for name in ("gpu_straggler", "cpu_balanced", "many_ranks", "nothing_usable"))],
    indirect=["any_report"],
)  # fmt: skip
def test_axe_finds_nothing_serious(
    any_report: ClusterReport, scheme: str, rules: str, show: Callable[[ClusterReport], Browser]
) -> None:
    assert AXE is not None
    assert AXE.origin is not None
    engine = Path(AXE.origin).with_name("axe.min.js").read_text(encoding="utf-8")
    # more rows of a kind tell axe nothing, but take it half a minute
    any_report.kernels = any_report.kernels[:4]
    for rows in ("ranks", "idle", "steps"):
        setattr(any_report, rows, [row for row in getattr(any_report, rows) if row.rank in (0, 1, 2, 36, 37, 38)])
    browser = show(any_report)
    browser.prefer(scheme)
    browser.run(
        "document.querySelectorAll('details').forEach((part) => { part.open = true });"
        "document.querySelectorAll('main > section').forEach((part) => { part.style.contentVisibility = 'visible' })"
    )
    found = browser.wait_for(
        f"const done = arguments[arguments.length - 1]; {engine};"
        f"axe.run({rules}).then((result) => done("
        "[result.passes.map((rule) => rule.id), result.violations.map((fault) => "
        "fault.impact + ' ' + fault.id + ': ' + fault.nodes.slice(0, 3).map((node) => node.html).join(' '))]))"
    )
    browser.prefer("")
    looked = {"color-contrast"} if scheme == "dark" else {"color-contrast", "aria-valid-attr-value", "region"}
    assert looked <= set(found[0])
    assert [fault for fault in found[1] if fault.startswith(("serious", "critical"))] == []
