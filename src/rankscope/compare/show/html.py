"""One page without scripts, requests or fonts of its own; light or dark as the reader's."""

from __future__ import annotations

from html import escape

from rankscope.compare.show.wording import LABELS, headline, parts, sections, steps_line
from rankscope.records.diff import RunDiff

__all__ = ["body", "render"]

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #8884; --dim: #777; --worse: #b3261e; --better: #1b7a3d }}
@media (prefers-color-scheme: dark) {{ :root {{ --dim: #aaa; --worse: #ff8a80; --better: #7bd88f }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.5rem; margin: 0 }} h2 {{ font-size: 1rem; margin: 1.6rem 0 .3rem }}
.slower {{ color: var(--worse) }} .faster {{ color: var(--better) }} .dim {{ color: var(--dim) }}
table {{ border-collapse: collapse; width: 100% }}
td {{ border-top: 1px solid var(--line); padding: .3rem .6rem; vertical-align: top; overflow-wrap: anywhere }}
td:first-child {{ white-space: nowrap; text-align: right; width: 9rem; font-variant-numeric: tabular-nums }}
.bar {{ display: flex; height: 1.1rem; margin: .4rem 0; background: var(--line) }}
.host {{ background: #4e79a7 }} .device {{ background: #f28e2b }} .transfer {{ background: #59a14f }}
.unexplained {{ background: #9c9c9c }}
</style></head><body>
{body}
</body></html>
"""


def render(diffs: list[RunDiff]) -> str:
    """Return a page with a part for each run after the first."""
    title = f"{diffs[0].before.name} against {', '.join(diff.after.name for diff in diffs)}"
    return _PAGE.format(title=escape(title), body=body(diffs))


def body(diffs: list[RunDiff]) -> str:
    """Return the page's content alone, for a notebook."""
    return "\n<hr>\n".join(_one(diff) for diff in diffs)


def _one(diff: RunDiff) -> str:
    blocks = [
        f'<h1 class="{diff.verdict}">{LABELS[diff.verdict]}: {escape(headline(diff))}</h1>',
        f'<p class="dim">{escape(diff.before.name)} -&gt; {escape(diff.after.name)}; {escape(steps_line(diff))}</p>',
    ]
    if diff.reasons:
        blocks.append("<h2>Why they cannot be compared</h2>" + _list(diff.reasons))
    if diff.parts:
        blocks.append("<h2>Because</h2>" + _bar(diff) + _table([(change, what, "") for change, what in parts(diff)]))
    blocks += [f"<h2>{escape(section.title)}</h2>{_table(section.rows)}" for section in sections(diff)]
    for title, lines in (
        ("New findings", diff.findings_new),
        ("Findings that are gone", diff.findings_gone),
        ("Changed", diff.changed),
        ("Promised against got", [_promise(diff, number) for number in range(len(diff.promises))]),
        ("Notes", diff.notes),
    ):
        if lines:
            blocks.append(f"<h2>{title}</h2>{_list(lines)}")
    return "\n".join(blocks)


def _promise(diff: RunDiff, number: int) -> str:
    own = diff.promises[number]
    bound = "at most " if own.at_most else ""
    return f"{bound}{own.promised_ms:.1f} ms {own.text}; got {own.got_ms:.1f} ms ({'kept' if own.kept else 'not kept'})"


def _bar(diff: RunDiff) -> str:
    """Draw the parts with the sign of the difference, to scale."""
    change = diff.step.change or 0.0
    same = [part for part in diff.parts if part.ms * change > 0]
    whole = sum(abs(part.ms) for part in same) or 1.0
    spans = [
        f'<span class="{part.kind}" style="width:{100 * abs(part.ms) / whole:.2f}%" '
        f'title="{part.kind} {part.ms:+.2f} ms"></span>'
        for part in same
    ]
    return f'<div class="bar" role="img" aria-label="parts of the difference, to scale">{"".join(spans)}</div>'


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = []
    for change, what, more in rows:
        below = f'<br><span class="dim">{escape(more)}</span>' if more else ""
        cells.append(f"<tr><td>{escape(change)}</td><td>{escape(what)}{below}</td></tr>")
    return f"<table>{''.join(cells)}</table>"


def _list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
