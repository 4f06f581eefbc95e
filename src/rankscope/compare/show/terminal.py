"""For a terminal of 80 columns."""

from __future__ import annotations

import textwrap

from rankscope.compare.show.wording import LABELS, amount, headline, parts, sections, steps_line
from rankscope.records.diff import RunDiff

__all__ = ["render"]

WIDTH = 80
LABEL = 15
CHANGE = 12


def render(diffs: list[RunDiff], width: int = WIDTH) -> str:
    """Return one difference in full; for several, a table first."""
    blocks = [_table(diffs)] if len(diffs) > 1 else []
    blocks += [_one(diff, width) for diff in diffs]
    return "\n".join(blocks)


def _table(diffs: list[RunDiff]) -> str:
    """Return a table of the first run and of each other one compared with it."""
    longest = max(len(side.name) for side in (diffs[0].before, *(diff.after for diff in diffs)))
    first = diffs[0].step.before
    lines = [f"{diffs[0].before.name:{longest}}  {amount(first, 'ms'):>10}"]
    for diff in diffs:
        change = amount(diff.step.change, "ms", sign=True) if diff.step.told else "~"
        step = amount(diff.step.after, "ms")
        lines.append(f"{diff.after.name:{longest}}  {step:>10}  {change:>10}  {LABELS[diff.verdict].lower()}")
    return "\n".join(lines) + "\n"


def _one(diff: RunDiff, width: int) -> str:
    lines: list[str] = []

    def put(label: str, change: str, text: str) -> None:
        head = f"{label:{LABEL}}" + (f"{change:>{CHANGE - 2}}  " if change else "")
        below = " " * (LABEL + (CHANGE if change else 0))
        made = textwrap.wrap(text, width, initial_indent=head, subsequent_indent=below, break_on_hyphens=False)
        lines.extend(made or [head.rstrip()])

    put(LABELS[diff.verdict], "", f"{diff.before.name} -> {diff.after.name}")
    put("", "", headline(diff))
    put("", "", steps_line(diff))
    for number, reason in enumerate(diff.reasons):
        put("" if number else "Why not", "", reason)
    for number, (change, text) in enumerate(parts(diff)):
        put("" if number else "Because", change, text)
    for section in sections(diff):
        for number, (change, what, detail) in enumerate(section.rows):
            put("" if number else section.title, change, f"{what}; {detail}" if detail else what)
    for label, titles in (("New", diff.findings_new), ("Gone", diff.findings_gone)):
        for number, title in enumerate(titles):
            put("" if number else label, "", title)
    put("Changed", "", "; ".join(diff.changed) or "nothing that both runs know of")
    for promise in diff.promises:
        error = f" ± {promise.error_ms:.1f}" if promise.error_ms is not None else ""
        kept = "kept" if promise.kept else "not kept"
        got = f"Got: {promise.got_ms:.1f} ms ({kept})."
        bound = "at most " if promise.at_most else ""
        put("Promised", "", f"{bound}{promise.promised_ms:.1f}{error} ms {promise.text}. {got}")
    for number, note in enumerate(diff.notes):
        put("" if number else "Note", "", note)
    return "\n".join(lines) + "\n"
