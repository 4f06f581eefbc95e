"""A history as lines for a terminal, and as a page with its curve."""

from __future__ import annotations

from html import escape

from rankscope.compare.history import History
from rankscope.listing import counted

__all__ = ["html", "terminal"]

_WIDTH, _HEIGHT, _EDGE = 900, 260, 40


def terminal(found: History) -> str:
    """Return one line per run, and the changes."""
    steps = [step for step in found.step_ms if step is not None]
    most = max(steps, default=1.0)
    marks = {change.index: change for change in found.changes}
    longest = max((len(run) for run in found.runs), default=0)
    lines = [f"Baseline {found.name}: {counted(len(found.runs), 'run')}, a step in ms"]
    for number, (run, step, verdict) in enumerate(zip(found.runs, found.step_ms, found.verdicts, strict=True)):
        if number in marks:
            lines.append(f"  -- {marks[number].relative:+.1%} from here on")
        bar = "#" * round(20 * step / most) if step else ""
        lines.append(f"  {run:{longest}}  {'?' if step is None else f'{step:.1f}':>8}  {bar:20}  {verdict}")
    return "\n".join([*lines, *_conclusions(found)]) + "\n"


def _conclusions(found: History) -> list[str]:
    lines = [f"Changed: {c.before:.1f} -> {c.after:.1f} ms from {found.runs[c.index]} on" for c in found.changes]
    if found.creeps and found.creep is not None:
        lines.append(f"Creeping: the last run is {found.creep:.1%} slower than the oldest one that was accepted")
    if found.note:
        lines.append(f"Note: {found.note}")
    return lines or ["Nothing changed for good."]


def html(found: History) -> str:
    """Return a page with the curve, its changes, and a table of runs with their findings."""
    rows = "".join(
        f"<tr><td>{escape(run)}</td><td>{escape(created)}</td><td class=n>{'?' if step is None else f'{step:.2f}'}</td>"
        f"<td>{escape(verdict)}</td><td>{escape('; '.join(titles))}</td></tr>"
        for run, created, step, verdict, titles in zip(
            found.runs, found.created, found.step_ms, found.verdicts, found.findings, strict=True
        )
    )
    conclusions = "".join(f"<li>{escape(line)}</li>" for line in _conclusions(found))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Baseline {escape(found.name)}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }} .n {{ text-align: right; font-variant-numeric: tabular-nums }}
td, th {{ border-top: 1px solid #8884; padding: .3rem .6rem; text-align: left; vertical-align: top }}
svg {{ width: 100%; height: auto }} svg text {{ fill: currentColor; font-size: 12px }}
</style></head><body>
<h1>Baseline {escape(found.name)}</h1>
<ul>{conclusions}</ul>
{_curve(found)}
<table><tr><th>run</th><th>ended</th><th class=n>step, ms</th><th>verdict</th><th>findings</th></tr>{rows}</table>
</body></html>
"""


def _curve(found: History) -> str:
    """Draw the points of the runs, the medians between changes, and a line at each change. The axis begins at zero."""
    steps = [step for step in found.step_ms if step is not None]
    if not steps:
        return ""
    most, last = max(steps) * 1.1, max(len(found.runs) - 1, 1)

    def place(number: float, step: float) -> tuple[float, float]:
        x = _EDGE + number / last * (_WIDTH - 2 * _EDGE)
        return x, _HEIGHT - _EDGE - step / most * (_HEIGHT - 2 * _EDGE)

    dots = []
    for number, (run, step) in enumerate(zip(found.runs, found.step_ms, strict=True)):
        if step is not None:
            x, y = place(number, step)
            title = f"<title>{escape(run)}: {step:.2f} ms</title>"
            dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#4e79a7">{title}</circle>')
    bounds = [0, *(change.index for change in found.changes), len(found.runs)]
    levels = [found.changes[0].before, *(c.after for c in found.changes)] if found.changes else []
    lines = []
    for begin, end, level in zip(bounds[:-1], bounds[1:], levels, strict=False):
        (x, y), (z, _) = place(begin - 0.4, level), place(end - 0.6, level)
        lines.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{z:.1f}" y2="{y:.1f}" stroke="#f28e2b" stroke-width="2"/>')
    labels = [
        f'<text x="4" y="{place(0, value)[1]:.1f}">{value:.0f} ms</text>' for value in (0.0, max(steps) / 2, max(steps))
    ]
    (x, y), (z, _) = place(0, 0), place(last, 0)
    axis = f'<line x1="{x}" y1="{y}" x2="{z}" y2="{y}" stroke="#8888"/>'
    drawn = "".join([axis, *lines, *dots, *labels])
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="step time of each run">{drawn}</svg>'
