"""The report in at most 40 lines. Plain if the output is not a terminal; colour never carries information alone."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rankscope.causes.wording import amount, step_time
from rankscope.records.report import ClusterReport
from rankscope.report.common import breakdown, plain_text, summary
from rankscope.report.common import wording as words
from rankscope.report.common.rank_rows import RankRow, rank_rows
from rankscope.report.common.rounding import tidy
from rankscope.report.sections.verdict.findings import costs_nothing, shown_findings

__all__ = ["MAX_LINES", "lines", "render", "show"]

MAX_LINES = 40
_PLAIN_WIDTH = 80
"""Width for a CI log, and for any other output of unknown width."""
_WIDE = 100
"""Width from which on the shares are printed as numbers after the bar."""
_LEAST_TABLE = 10
"""Lines of the table and of its separation from the rest."""
_MAX_BAR = 60
_MAX_RANKS = 8
_LABEL = 9
"""Width of the column that holds Verdict, Why and Next."""

_GLUE = "\ue000"
"""Takes the place of a space at which no line may break, since rich treats a no-break space as a space."""

_STYLES = {"straggler": "bold red", "balanced": "bold green", "insufficient_data": "bold yellow"}
_GLYPHS = {
    "compute": ("█", "#", "blue"),
    "fused": ("█", "*", "cyan"),
    "comm": ("▞", "%", "magenta"),
    "waiting": ("▒", "/", "yellow"),
    "transfer": ("▓", "=", "magenta"),
    "copy": ("▪", "c", "cyan"),
    "idle": ("╌", "-", "dim"),
    "input": ("○", "o", "red"),
    "host": ("·", ".", "dim"),
}
"""Segment -> its glyph, the glyph for ASCII output, its colour."""


def render(report: ClusterReport, width: int = _PLAIN_WIDTH, *, unicode: bool = True) -> str:
    """Return plain text, ``width`` columns wide; in ASCII only if ``unicode`` is false."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, legacy_windows=False)
    _print(lines(report, console, unicode=unicode), console)
    return stream.getvalue()


def show(report: ClusterReport, console: Console, where: Path | str | None = None) -> None:
    """Print the report to ``console``; rich decides on colour (NO_COLOR, pipes). ``where`` names the page."""
    _print(lines(report, console, where, unicode="utf" in console.encoding.lower()), console)


def _print(found: list[Text], console: Console) -> None:
    for line in found:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def lines(
    report: ClusterReport, console: Console, where: Path | str | None = None, *, unicode: bool = True
) -> list[Text]:
    """Return the lines, none wider than the console unless it is the path at the end, at most 40 of them."""
    report = tidy(report)
    width = max(console.width, 40)
    head, foot = _verdict(report, width, 3), _foot(report, width, 2)
    if not summary.is_recorded(report) and report.ranks:  # there is nothing to show but what ended it
        foot = [
            *(line for warning in summary.warnings(report)[:3] for line in _labelled("", warning, "yellow", width)),
            *([] if where is None else _labelled("Report", plain_text.clean(str(where)), "bold", 10**6)[:1]),
        ]
        return head + ([Text(), *foot] if foot else [])
    if len(head) + len(foot) + _LEAST_TABLE > MAX_LINES:
        head, foot = _verdict(report, width, 2), _foot(report, width, 1)
    if where is not None:
        foot.append(_labelled("Report", plain_text.clean(str(where)), "bold", 10**6)[0])
    # The table is shortened first: verdict and limitations matter more than the eighth rank.
    room = MAX_LINES - len(head) - len(foot) - 2
    found = [*head, Text(), *_table(report, width, unicode, room), Text(), *foot]
    if not unicode:
        found = [_ascii(line) for line in found]
    return found


def _ascii(line: Text) -> Text:
    return Text(plain_text.to_ascii(line.plain))


def _labelled(label: str, text: str, style: str, width: int, limit: int = 2) -> list[Text]:
    """Return a label and a hanging paragraph of at most ``limit`` lines."""
    room = width - _LABEL
    wrapped = _wrap(text, room)
    if len(wrapped) > limit:
        wrapped = [*wrapped[: limit - 1], _cut(" ".join(wrapped[limit - 1 :]), room)]
    found = []
    for index, part in enumerate(wrapped):
        head = Text((label if index == 0 else "").ljust(_LABEL), "bold")
        found.append(Text.assemble(head, (part, style)))
    return found


def _wrap(text: str, width: int) -> list[str]:
    """Wrap by terminal cells, so that wide letters and emoji count as two; numbers stay with their units."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    wrapped = Text(plain_text.keep_units(text, _GLUE)).wrap(console, width)
    return [line.plain.rstrip().replace(_GLUE, " ") for line in wrapped] or [""]


def _cut(text: str, width: int) -> str:
    """Truncate a text that is too long, between words if possible, with an ellipsis."""
    line = Text(text)
    if line.cell_len <= width:
        return text
    line.truncate(width - 1)
    head, space, _ = line.plain.rpartition(" ")
    return (head if space and len(head) > width // 2 else line.plain).rstrip(" ,;:(") + "…"


def _verdict(report: ClusterReport, width: int, limit: int) -> list[Text]:
    """Return Verdict, Why, Next and Sure; each item of Why and Next takes at most ``limit`` lines."""
    verdict = report.verdict
    found = _labelled("Verdict", words.sentence(verdict), _STYLES.get(verdict.kind, "bold"), width, 4)
    for label, shown in (("Why", verdict.why[:3]), ("Next", verdict.next[:3] or ["Nothing to do first."])):
        for index, item in enumerate(shown):
            found += _labelled(label if index == 0 else "", plain_text.prose(item), "", width, limit)
    sure = f"{plain_text.one_line(verdict.confidence, 20)} confidence"
    if verdict.sure:
        sure = f"{sure}: {plain_text.one_line(verdict.sure, 200)}"
    if verdict.kind != "insufficient_data":
        found += _labelled("Sure", sure, "dim", width)
    if line := summary.between_line(report):
        found += _labelled("Between", line, "", width, limit - 1)
    return found


def _foot(report: ClusterReport, width: int, limit: int) -> list[Text]:
    """Return the lines after the table; each number of the run and each warning takes at most ``limit`` lines."""
    found = []
    named = {report.verdict.cause}
    told = [
        set(action.ranks) for action in report.actions if action.kind == "replay"
    ]  # in the verdict, by their causes
    others = [f for f in shown_findings(report) if f.kind not in named and set(f.ranks) not in told][:3]
    for index, finding in enumerate(others):
        cost = "" if finding.cost_ms_per_step is None else f" ({amount(finding.cost_ms_per_step)} per step)"
        title = plain_text.prose(finding.title or words.cause(finding.kind), 200) + cost
        found += _labelled("Findings" if index == 0 else "", title, "", width)
    if cheap := [f for f in costs_nothing(report) if f.kind not in named]:
        titles = "; ".join(plain_text.prose(f.title or words.cause(f.kind), 100) for f in cheap[:3])
        found += _labelled("Also", f"costs nothing today: {titles}", "dim", width)
    for label, line in (
        ("Modules", summary.modules_line(report)),
        ("Idle", summary.idle_line(report)),
        ("Memory", summary.memory_line(report)),
        ("Rates", summary.throughput_line(report)),
    ):
        if line:
            found += _labelled(label, line, "", width, limit)
    if run_steps := summary.run_steps_line(report):
        found += _labelled("Steps", run_steps, "", width, 1 if width < _WIDE else 2)
    trust = summary.clock_line(report)
    overhead = summary.overhead_line(report)
    found += _labelled("Trust", trust + (f"; {overhead}" if overhead else ""), "dim", width)
    limits = summary.warnings(report)
    for index, warning in enumerate(limits[:3]):
        found += _labelled("Warnings" if index == 0 else "", warning, "yellow", width, limit)
    if len(limits) > 3:
        found += _labelled("", f"and {len(limits) - 3} more in the report", "yellow", width, 1)
    return found


def _table(report: ClusterReport, width: int, unicode: bool, room: int) -> list[Text]:
    if not report.ranks:
        return [Text("No rank was found.")]
    # One line for the heads, one for the legend, two for ranks without a trace.
    rows = rank_rows(report, min(_MAX_RANKS, max(room - 4, 2)))
    heads, cells = _columns(rows, waits=len(report.ranks) > 1)
    widths = [max(len(head), *(len(row[i]) for row in cells)) for i, head in enumerate(heads)]
    numbers = ("compute", "exposed", "idle") if width >= _WIDE else ()
    before = 2 + sum(widths) + 2 * len(widths)
    bar = max(min(_MAX_BAR, width - before - sum(len(name) + 2 for name in numbers)), 0)
    step = report.verdict.step_ms
    title = "where its time goes" if step is None else f"where a step of {step_time(step)} goes"
    if report.verdict.step_source == "unrecorded":  # the bars show recorded steps
        title = "where a recorded step goes"
    behind = "".join(f"  {name}" for name in numbers)
    found = [Text("  " + _join(heads, widths) + f"  {title:{bar}.{bar}}" + behind, style="dim")]
    used: dict[str, None] = {}
    for row, text in zip(rows, cells, strict=True):
        line = Text(("> " if row.named else "  ") + _join(text, widths) + "  ", style="bold" if row.named else "")
        if row.shares is None:
            line.append(row.note, style="yellow")
        else:
            line.append_text(_bar(row.parts, bar, unicode, used))
            line.append(" " * max(before + bar - line.cell_len, 0))
            for name in numbers:
                line.append("  " + words.pct(getattr(row.shares, _SHARE[name]), 0).rjust(len(name)))
        found.append(line)
    for line in found:
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
    return found + _legend(used, width, unicode)


_SHARE = {"compute": "compute_pct", "exposed": "exposed_comm_pct", "idle": "idle_pct"}


def _columns(rows: list[RankRow], *, waits: bool) -> tuple[list[str], list[list[str]]]:
    columns = [("rank", [row.label for row in rows])]
    if any(row.host for row in rows):
        columns.append(("host", [row.host for row in rows]))
    costs = ["" if row.cost_ms is None else amount(row.cost_ms).removesuffix(" ms") for row in rows]
    waiting = ["" if row.wait_ms is None else words.ms(row.wait_ms, "") for row in rows if waits]
    for head, values in (("costs ms", costs), ("waits ms", waiting)):
        if any(values):
            known = zip(rows, values, strict=True)
            columns.append((head, [value or words.DASH if row.shares is not None else "" for row, value in known]))
    return [head for head, _ in columns], [list(row) for row in zip(*(cells for _, cells in columns), strict=True)]


def _join(cells: list[str], widths: list[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _bar(parts: Iterable[breakdown.Segment], width: int, unicode: bool, used: dict[str, None]) -> Text:
    bar = Text()
    for part in parts:
        cells = round((part.start + part.pct) * width / 100) - round(part.start * width / 100)
        if cells > 0:
            glyph, plain, style = _GLYPHS[part.key]
            bar.append((glyph if unicode else plain) * cells, style=style)
            used[part.key] = None
    return bar


def _legend(used: dict[str, None], width: int, unicode: bool) -> list[Text]:
    """Return the meaning of the glyphs, on as many lines as needed."""
    found: list[Text] = []
    for key in (key for key in breakdown.LEGEND if key in used):
        glyph, plain, style = _GLYPHS[key]
        entry = Text.assemble((glyph if unicode else plain, style), (f" {breakdown.LEGEND[key][0].lower()}", "dim"))
        if found and found[-1].cell_len + 2 + entry.cell_len <= width:
            found[-1].append("  ").append_text(entry)
        else:
            found.append(Text("  ").append_text(entry))
    return found
