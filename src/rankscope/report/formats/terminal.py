"""The report in at most 40 lines. Plain where the output is no terminal; colour is never the only sign."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rankscope.records.report import ClusterReport
from rankscope.records.rows import RankSummary
from rankscope.report.common import breakdown, plain_text, summary
from rankscope.report.common import wording as words
from rankscope.report.common.rounding import tidy

__all__ = ["MAX_LINES", "lines", "render", "show"]

MAX_LINES = 40
_PLAIN_WIDTH = 100
_MAX_RANKS = 8
_LABEL = 9
"""Width of the column that holds Verdict, Why and Next."""

_GLUE = "\ue000"
"""Stands for a space at which no line may break. rich takes a no-break space for a space."""

_STYLES = {"straggler": "bold red", "balanced": "bold green", "insufficient_data": "bold yellow"}
_GLYPHS = {
    "compute": ("█", "#", "blue"),
    "fused": ("█", "*", "cyan"),
    "comm": ("▒", "~", "magenta"),
    "waiting": ("▒", "~", "yellow"),
    "transfer": ("▓", "=", "magenta"),
    "copy": ("▪", "c", "cyan"),
    "idle": ("·", ".", "dim"),
    "input": ("○", "o", "red"),
    "host": ("·", ".", "dim"),
}
"""Segment -> its glyph, the glyph for ASCII output, its colour."""


def render(report: ClusterReport) -> str:
    """Return plain text, 100 columns wide."""
    stream = io.StringIO()
    show(report, Console(file=stream, width=_PLAIN_WIDTH, color_system=None, legacy_windows=False))
    return stream.getvalue()


def show(report: ClusterReport, console: Console, where: Path | str | None = None) -> None:
    """Print the report to ``console``; rich decides about colour (NO_COLOR, pipes). ``where`` names the page."""
    for line in lines(report, console, where):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def lines(report: ClusterReport, console: Console, where: Path | str | None = None) -> list[Text]:
    """Return the lines, none wider than the console unless it is the path at the end, at most 40 of them."""
    report = tidy(report)
    width = max(console.width, 40)
    unicode = "utf" in console.encoding.lower()
    head = _verdict(report, width)
    foot = _foot(report, width)
    if where is not None:
        foot.append(_labelled("Report", plain_text.clean(str(where)), "bold", 10**6)[0])
    # The table gives way first: verdict and limits matter more than the eighth rank.
    room = MAX_LINES - len(head) - len(foot) - 2
    found = [*head, Text(), *_table(report, width, unicode, room), Text(), *foot]
    if not unicode:
        found = [_ascii(line) for line in found]
    return found


def _ascii(line: Text) -> Text:
    text = line.plain.translate({ord("µ"): "u", ord(words.DASH): "-", ord("…"): "~", ord("±"): "+"})
    return Text(text.encode("ascii", "replace").decode())


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
    """Wrap by terminal cells, so that wide letters and emoji count as two; a number keeps its unit."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    wrapped = Text(plain_text.keep_units(text, _GLUE)).wrap(console, width)
    return [line.plain.rstrip().replace(_GLUE, " ") for line in wrapped] or [""]


def _cut(text: str, width: int) -> str:
    """Return the beginning of a text that is too long, with an ellipsis."""
    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line.plain


def _verdict(report: ClusterReport, width: int) -> list[Text]:
    verdict = report.verdict
    found = _labelled("Verdict", words.sentence(verdict), _STYLES.get(verdict.kind, "bold"), width, 3)
    facts = [words.KIND_LABELS.get(verdict.kind, "")]
    if verdict.cost_ms_per_step is not None:
        cost = words.plus_minus(verdict.cost_ms_per_step, verdict.cost_error_ms)
        share = words.share_of_step(verdict.cost_ms_per_step, verdict.step_ms)
        of = "" if share is None else f" ({share:.0f} % of {words.ms(verdict.step_ms)})"
        facts.append(" ".join(filter(None, (f"costs {cost} per step{of}", words.steps_share(verdict)))))
    facts.append(f"{plain_text.one_line(verdict.confidence, 20)} confidence")
    found += _labelled("", "; ".join(fact for fact in facts if fact), "dim", width, 2)
    for label, items, fallback in (
        ("Why", verdict.why, "No evidence was stated."),
        ("Next", verdict.next, "Nothing to do first."),
    ):
        for index, item in enumerate(items[:3] or [fallback]):
            found += _labelled(label if index == 0 else "", plain_text.prose(item), "", width)
    return found


def _foot(report: ClusterReport, width: int) -> list[Text]:
    found = []
    named = {report.verdict.cause}
    others = [finding for finding in report.findings if finding.kind not in named][:3]
    for index, finding in enumerate(others):
        cost = "" if finding.cost_ms_per_step is None else f" ({words.ms(finding.cost_ms_per_step)} per step)"
        title = plain_text.prose(finding.title or words.cause(finding.kind), 200) + cost
        found += _labelled("Findings" if index == 0 else "", title, "", width)
    for label, line in (
        ("Modules", summary.modules_line(report)),
        ("Queue", summary.queue_line(report)),
        ("Memory", summary.memory_line(report)),
    ):
        if line:
            found += _labelled(label, line, "", width)
    if pulse := summary.pulse_line(report):
        found += _labelled("Pulse", pulse, "", width, 1 if width < _PLAIN_WIDTH else 2)
    trust = summary.clock_line(report)
    overhead = summary.overhead_line(report)
    found += _labelled("Trust", trust + (f"; {overhead}" if overhead else ""), "dim", width)
    limits = summary.warnings(report)
    for index, warning in enumerate(limits[:3]):
        found += _labelled("Warnings" if index == 0 else "", warning, "yellow", width, 1)
    if len(limits) > 3:
        found += _labelled("", f"and {len(limits) - 3} more in the report", "yellow", width, 1)
    return found


def _table(report: ClusterReport, width: int, unicode: bool, room: int) -> list[Text]:
    if not report.ranks:
        return [Text("No rank was found.")]
    # One line for the heads, one for the legend, one for "and N more".
    shown = summary.interesting(report, min(_MAX_RANKS, max(room - 3, 1)))
    heads, rows = _columns(shown, width)
    idle = {row.rank: row for row in report.idle}
    cells = [max(len(head), *(len(row[i]) for row in rows)) for i, head in enumerate(heads)]
    bar = min(30, width - sum(cells) - 2 * len(cells) - 4)
    found = [Text("  " + _join(heads, cells) + ("  where its time goes" if bar >= 20 else ""), style="dim")]
    found[0].truncate(width, overflow="ellipsis")
    used: dict[str, None] = {}
    for rank, row in zip(shown, rows, strict=True):
        named = rank.rank in report.verdict.ranks
        line = Text(("> " if named else "  ") + _join(row, cells), style="bold" if named else "")
        if bar >= 10:
            parts = breakdown.segments(rank, idle.get(rank.rank))
            line.append("  ").append_text(_bar(parts, bar, unicode, used) if parts else _no_bar(rank))
        line.truncate(width, overflow="ellipsis")
        found.append(line)
    hidden = len(report.ranks) - len(shown)
    if hidden:
        found.append(Text(f"  and {hidden:,} more", style="dim"))
    return found + _legend(used, width, unicode)


def _columns(shown: list[RankSummary], width: int) -> tuple[list[str], list[list[str]]]:
    heads = ["rank", "step ms", "compute", "exposed", "idle", "waits ms", "makes wait ms"]
    rows = [
        [
            str(rank.rank),
            words.ms(rank.step_ms.get("median"), ""),
            words.pct(rank.compute_pct, 0),
            words.pct(rank.exposed_comm_pct, 0),
            words.pct(rank.idle_pct, 0),
            words.ms(rank.wait_ms_per_step, ""),
            words.ms(rank.caused_wait_ms_per_step, ""),
        ]
        for rank in shown
    ]
    if width >= 80:
        heads.insert(1, "host")
        for rank, row in zip(shown, rows, strict=True):
            row.insert(1, plain_text.one_line(rank.host, 14) if rank.host else words.DASH)
    elif width < 72:
        heads, rows = heads[:5], [row[:5] for row in rows]
    return heads, rows


def _join(cells: list[str], widths: list[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _no_bar(rank: RankSummary) -> Text:
    reason = f": {plain_text.one_line(rank.reason, 80)}" if rank.reason else ""
    return Text(rank.status + reason, style="yellow")


def _bar(parts: list[breakdown.Segment], width: int, unicode: bool, used: dict[str, None]) -> Text:
    bar = Text()
    for part in parts:
        cells = round((part.start + part.pct) * width / 100) - round(part.start * width / 100)
        if cells > 0:
            glyph, plain, style = _GLYPHS[part.key]
            bar.append((glyph if unicode else plain) * cells, style=style)
            used[part.key] = None
    return bar


def _legend(used: dict[str, None], width: int, unicode: bool) -> list[Text]:
    if not used:
        return []
    line = Text("  ")
    for key in (key for key in breakdown.LEGEND if key in used):
        glyph, plain, style = _GLYPHS[key]
        line.append(glyph if unicode else plain, style=style)
        line.append(f" {breakdown.LEGEND[key][0].lower()}  ", style="dim")
    line.rstrip()
    line.truncate(width, overflow="ellipsis")
    return [line]
