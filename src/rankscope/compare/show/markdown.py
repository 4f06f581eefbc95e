"""For a pull request: under 60 lines, the first of which fits the title of a check, and short enough for a comment."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.compare.gate import Failure
from rankscope.compare.show.wording import LABELS, headline, parts, sections, steps_line
from rankscope.records.diff import RunDiff

__all__ = ["failures_list", "plain", "render"]

LONGEST = 60_000
"""Characters. A comment on GitHub has 65,536 at most, of which a list of conditions may take some."""

_ESCAPED = str.maketrans(
    {**{sign: f"\\{sign}" for sign in "\\`*_<>|[]~"}, **{sign: f"{sign}&#8203;" for sign in "@#"}, "&": "&amp;"}
)


def render(diffs: list[RunDiff]) -> str:
    """Return one section for each run after the first."""
    text = "\n".join(_one(diff) for diff in diffs)
    if len(text) <= LONGEST:
        return text
    whole_lines = text[:LONGEST].rpartition("\n")[0]
    return f"{whole_lines}\n\nThe rest is cut off; `--format html` has all of it.\n"


def _one(diff: RunDiff) -> str:
    lines = [
        f"**{LABELS[diff.verdict]}**: {plain(headline(diff))}",
        "",
        f"{_code(diff.before.name)} -> {_code(diff.after.name)}, {plain(steps_line(diff))}",
        "",
    ]
    lines += [f"- Not comparable: {plain(reason)}" for reason in diff.reasons]
    rows = [("Because", change, what) for change, what in parts(diff)]
    for section in sections(diff):
        rows += [(section.title, change, f"{what}; {more}" if more else what) for change, what, more in section.rows]
    if rows:
        lines += ["", "| | change a step | |", "| --- | ---: | --- |"]
        last = ""
        for title, change, what in rows:
            lines.append(f"| {title if title != last else ''} | {plain(change)} | {plain(what)} |")
            last = title
    lines += ["", f"Changed: {plain('; '.join(diff.changed) or 'nothing that both runs know of')}"]
    lines += [f"- New finding: {plain(title)}" for title in diff.findings_new[:5]]
    lines += [f"- Finding gone: {plain(title)}" for title in diff.findings_gone[:5]]
    for promise in diff.promises:
        kept = "kept" if promise.kept else "not kept"
        got = f"got {promise.got_ms:.1f} ms ({kept})"
        bound = "at most " if promise.at_most else ""
        lines.append(f"- Promised {bound}{promise.promised_ms:.1f} ms {plain(promise.text)}, {got}")
    lines += [f"- Note: {plain(note)}" for note in diff.notes[:5]]
    return "\n".join(lines) + "\n"


def failures_list(conditions: Sequence[str], failures: Sequence[Failure]) -> str:
    """List the conditions that fail, or state that all pass."""
    lines = [
        f"- {'Fails' if failure.state == 'holds' else 'Undecided'}: {_code(failure.condition)}: {plain(failure.text)}"
        for failure in failures
    ]
    passed = f"No condition holds: {', '.join(map(_code, conditions))}"
    return "\n".join([*(lines or [passed]), "", ""])


def plain(text: str) -> str:
    """Escape text for Markdown and HTML: names of kernels contain such characters. A name of a person behind ``@``
    would notify them, and a number behind ``#`` would become a link: a space without width separates them."""
    return " ".join(text.translate(_ESCAPED).split())


def _code(text: str) -> str:
    """Return text between backticks, of which it may contain none."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"
