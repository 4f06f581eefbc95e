"""For a pull request: under 60 lines, the first of which fits the title of a check."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.compare.gate import Failure
from rankscope.compare.show.wording import LABELS, headline, parts, sections, steps_line
from rankscope.records.diff import RunDiff

__all__ = ["failures_list", "render"]


def render(diffs: list[RunDiff]) -> str:
    """Return one section for each run after the first."""
    return "\n".join(_one(diff) for diff in diffs)


def _one(diff: RunDiff) -> str:
    lines = [
        f"**{LABELS[diff.verdict]}**: {_plain(headline(diff))}",
        "",
        f"`{diff.before.name}` -> `{diff.after.name}`, {steps_line(diff)}",
        "",
    ]
    lines += [f"- Not comparable: {_plain(reason)}" for reason in diff.reasons]
    rows = [("Because", change, what) for change, what in parts(diff)]
    for section in sections(diff):
        rows += [(section.title, change, f"{what}; {more}" if more else what) for change, what, more in section.rows]
    if rows:
        lines += ["", "| | change a step | |", "| --- | ---: | --- |"]
        last = ""
        for title, change, what in rows:
            lines.append(f"| {title if title != last else ''} | {_plain(change)} | {_plain(what)} |")
            last = title
    lines += ["", f"Changed: {_plain('; '.join(diff.changed) or 'nothing that both runs know of')}"]
    lines += [f"- New finding: {_plain(title)}" for title in diff.findings_new[:5]]
    lines += [f"- Finding gone: {_plain(title)}" for title in diff.findings_gone[:5]]
    for promise in diff.promises:
        kept = "kept" if promise.kept else "not kept"
        got = f"got {promise.got_ms:.1f} ms ({kept})"
        bound = "at most " if promise.at_most else ""
        lines.append(f"- Promised {bound}{promise.promised_ms:.1f} ms {_plain(promise.text)}, {got}")
    lines += [f"- Note: {_plain(note)}" for note in diff.notes[:5]]
    return "\n".join(lines) + "\n"


def failures_list(conditions: Sequence[str], failures: Sequence[Failure]) -> str:
    """List the conditions that fail, or state that all pass."""
    lines = [
        f"- {'Fails' if failure.state == 'holds' else 'Undecided'}: `{failure.condition}`: {_plain(failure.text)}"
        for failure in failures
    ]
    passed = f"No condition holds: {', '.join(f'`{text}`' for text in conditions)}"
    return "\n".join([*(lines or [passed]), "", ""])


def _plain(text: str) -> str:
    """Escape text for Markdown and HTML: names of kernels contain such characters."""
    for sign in "\\`*_<>|[]~":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
