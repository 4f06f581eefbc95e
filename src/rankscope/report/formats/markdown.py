"""Markdown for a pull request or an issue: short, and no text of a trace can break its layout."""

from __future__ import annotations

import re

from rankscope.causes.wording import amount, step_time
from rankscope.listing import named_ranks
from rankscope.records.report import ClusterReport, Finding
from rankscope.report.common import hta, plain_text, summary
from rankscope.report.common import wording as words
from rankscope.report.common.rank_rows import RankRow, rank_rows
from rankscope.report.common.rounding import tidy
from rankscope.report.sections.verdict.findings import shown_findings

__all__ = ["MAX_CHARACTERS", "escape", "render"]

MAX_CHARACTERS = 60_000
"""GitHub rejects comments above 65,536."""

_SHORTENED = "*Shortened; the rest is in report.html and report.json.*\n"
_MAX_RANKS = 16
_MAX_FINDINGS = 12
_MAX_LINES = 8
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&#$])")
_MENTION = re.compile(r"@(?=\w)")


def escape(text: object, limit: int = 400) -> str:
    """Return one line that Markdown shows unchanged: no table break, code, link, HTML or mention."""
    line = _SPECIAL.sub(r"\\\1", plain_text.one_line(text, limit))
    return _MENTION.sub("@\u200b", line)  # zero-width space, so that a kernel's name does not notify a person


def render(report: ClusterReport, limit: int = MAX_CHARACTERS) -> str:
    """Return the report as Markdown, at most ``limit`` characters; only the verdict's first line is never cut."""
    report = tidy(report)
    blocks = [_verdict(report), _ranks(report), *_findings(report), _details(report), _trust(report), _hta(report)]
    text = ""
    for block in (block for block in blocks if block):
        room = limit - len(text) - len(_SHORTENED)
        if len(block) + 2 > room:
            # Of the verdict as many lines as fit; a table or finding that is cut would mislead.
            kept = "" if text else block[: max(room - 2, 0)].rpartition("\n")[0] or block.partition("\n")[0]
            text += (kept + "\n\n" if kept else "") + _SHORTENED
            break
        text += block + "\n\n"
    return text.rstrip("\n") + "\n"


def _verdict(report: ClusterReport) -> str:
    verdict = report.verdict
    facts = [words.kind(verdict)]
    if verdict.cost_ms_per_step is not None:
        share = words.share_of_step(verdict.cost_ms_per_step, verdict.step_ms)
        of = "" if share is None else f", {share:.0f} % of a step of {step_time(verdict.step_ms or 0.0)}"
        steps = words.steps_share(verdict)
        cost = f"{words.plus_minus(verdict.cost_ms_per_step, verdict.cost_error_ms)} per step{of}"
        facts.append(f"{cost}, {steps}" if steps else cost)
    facts.append(f"{escape(verdict.confidence)} confidence")
    lines = [f"**Verdict:** {escape(words.sentence(verdict), 600)}", "", f"*{'; '.join(facts)}*"]
    for title, items in (("Why", verdict.why), ("Next", verdict.next)):
        if items:
            lines += ["", f"**{title}**", "", *(f"- {escape(item)}" for item in items[:_MAX_LINES])]
    return "\n".join(lines)


def _ranks(report: ClusterReport) -> str:
    rows = rank_rows(report, _MAX_RANKS)
    if not rows or not summary.is_recorded(report):
        return ""
    heads = ["Rank", "Host", "Costs ms/step", "Waits ms/step", "Compute %", "Exposed comm. %", "Copies %", "Idle %"]
    rule = ["---:", "---", *["---:"] * (len(heads) - 2)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rule, *map(_rank, rows)))


def _rank(row: RankRow) -> list[str]:
    label = f"**{row.label}** ▲" if row.named else row.label
    if row.shares is None:
        return [label, escape(row.note), *[""] * 6]
    shares = (row.shares.compute_pct, row.shares.exposed_comm_pct, row.shares.memcpy_pct, row.shares.idle_pct)
    numbers = [words.DASH if share is None else f"{share:.1f}" for share in shares]
    return [
        label,
        escape(row.host),
        words.DASH if row.cost_ms is None else amount(row.cost_ms).removesuffix(" ms"),
        words.ms(row.wait_ms, ""),
        *numbers,
    ]


def _findings(report: ClusterReport) -> list[str]:
    found = shown_findings(report)
    blocks = [_finding(finding, report.verdict.step_ms) for finding in found[:_MAX_FINDINGS]]
    hidden = len(found) - len(blocks)
    if hidden:
        blocks.append(f"and {hidden} more findings in report.html")
    return blocks


def _finding(finding: Finding, step: float | None) -> str:
    cost = "" if finding.cost_ms_per_step is None else f", {amount(finding.cost_ms_per_step)} per step"
    where = "" if not finding.ranks else f", {named_ranks(finding.ranks)}"
    title = escape(plain_text.prose(finding.title or words.cause(finding.kind), 200))
    lines = [f"**{title}** ({escape(finding.confidence)} confidence{cost}{where})", ""]
    lines += [f"- {escape(line)}" for line in finding.evidence[:_MAX_LINES]]
    lines += [f"- To do: {escape(line)}" for line in finding.advice[:_MAX_LINES]]
    gain = words.gain(finding, step)
    return "\n".join([*lines, *([f"- {gain}"] if gain else [])])


def _details(report: ClusterReport) -> str:
    lines = (
        ("Rates", summary.throughput_line(report)),
        ("Modules", summary.modules_line(report, 6)),
        ("Idle", summary.idle_line(report)),
        ("Device memory", summary.memory_line(report)),
        ("Step times", summary.run_steps_line(report)),
    )
    return "\n".join(f"- {label}: {escape(line)}" for label, line in lines if line)


def _trust(report: ClusterReport) -> str:
    lines = [f"Trust: {escape(summary.clock_line(report))}."] if summary.is_recorded(report) else []
    overhead = summary.overhead_line(report)
    if overhead:
        lines.append(f"Recording: {escape(overhead)}.")
    return "  \n".join(lines + [f"Note: {escape(line)}" for line in summary.warnings(report)[:_MAX_LINES]])


def _hta(report: ClusterReport) -> str:
    """Return the numbers of HolisticTraceAnalysis that fit one line for each rank."""
    found = hta.overview(report)
    if not found:
        return ""
    heads = list(dict.fromkeys(head for _, numbers in found for head in numbers))
    rows = [
        [escape(rank, 40)] + [words.DASH if head not in numbers else _number(numbers[head]) for head in heads]
        for rank, numbers in found[:_MAX_RANKS]
    ]
    hidden = len(found) - len(rows)
    table = [["Rank", *heads], ["---:"] * (len(heads) + 1), *rows]
    more = f" (and {hidden} more, in report.json)" if hidden else ""
    title = f"**Holistic Trace Analysis**{more}; docs/hta.md has the definitions"
    return "\n".join([title, "", *(f"| {' | '.join(row)} |" for row in table)])


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}"
