"""One page with the table and a plot, without scripts, requests or fonts of its own; light or dark as the reader's."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from rankscope.records.sweep import SweepResult, SweepRow
from rankscope.sweeps.show.wording import COLUMNS, cells, lead, remarks, summary

__all__ = ["body", "render"]

_WIDTH, _LABEL, _EDGE, _LINE, _AXIS = 900, 300, 20, 34, 30
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}body {{ max-width: 64rem; margin: 2rem auto; padding: 0 1rem }}
</style></head><body>
{body}
</body></html>
"""
_STYLE = """
.sweep, body { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
.sweep h1 { font-size: 1.4rem; margin: 0 0 .5rem } .sweep p { margin: .2rem 0 }
.sweep table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
.sweep td, .sweep th { border-top: 1px solid #8884; padding: .3rem .6rem; text-align: right;
  font-variant-numeric: tabular-nums; vertical-align: top }
.sweep td + td { white-space: nowrap }
.sweep td:first-child, .sweep th:first-child { text-align: left; overflow-wrap: anywhere }
.sweep tr.told td:last-child { font-weight: 600 }
.sweep svg { width: 100%; height: auto } .sweep svg text { fill: currentColor; font-size: 13px }
"""


def render(result: SweepResult) -> str:
    """Return the page."""
    return _PAGE.format(title=escape(f"Sweep {result.name}"), style=_STYLE, body=body(result))


def body(result: SweepResult, *, styled: bool = False) -> str:
    """Return the page's content alone, for a notebook; ``styled`` with its style."""
    head = f"<h1>{escape(summary(result) or f'Sweep {result.name}')}</h1>"
    about = "".join(f"<p>{escape(line)}.</p>" for line in [f"Sweep {result.name}", *lead(result)])
    listed = "".join(f"<li>{escape(note)}</li>" for note in remarks(result))
    notes = f"<h2>Notes</h2><ul>{listed}</ul>" if listed else ""
    style = f"<style>{_STYLE}</style>" if styled else ""
    return f'{style}<div class="sweep">{head}{about}{_plot(result.rows)}{_table(result)}{notes}</div>'


def _table(result: SweepResult) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in COLUMNS)
    rows = []
    for place, row in enumerate(result.rows):
        css_class = ' class="told"' if row.told else ""
        rows.append(
            f"<tr{css_class}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells(row, first=not place))}</tr>"
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _plot(rows: list[SweepRow]) -> str:
    """Draw a line per setting: a dot per run, the step with its interval, and the first setting's step across all
    lines."""
    known = [row for row in rows if row.step_ms is not None]
    if not known:
        return ""
    ends = [(own.step_ms or 0.0) + (own.noise_ms or 0.0) for own in known] + [ms for own in known for ms in own.each_ms]
    least = [(own.step_ms or 0.0) - (own.noise_ms or 0.0) for own in known] + [
        ms for own in known for ms in own.each_ms
    ]
    low, high = max(min(least), 0.0), max(ends)
    room = 0.05 * (high - low) or 1.0
    low, high = max(low - room, 0.0), high + room

    def x(ms: float) -> float:
        return _LABEL + (max(min(ms, high), low) - low) / (high - low) * (_WIDTH - _LABEL - _EDGE)

    height, drawn = _LINE * len(known) + _AXIS, []
    if known[0] is rows[0]:
        at = x(known[0].step_ms or 0.0)
        drawn.append(f'<line x1="{at:.1f}" y1="0" x2="{at:.1f}" y2="{height - _AXIS}" stroke="#8888"/>')
    for place, row in enumerate(known):
        drawn.append(_line(row, _LINE * place + _LINE / 2, x))
    drawn += [
        f'<text x="{x(ms):.1f}" y="{height - 8}" text-anchor="middle">{ms:g} ms</text>' for ms in _ticks(low, high)
    ]
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="step of each setting">{"".join(drawn)}</svg>'


def _ticks(low: float, high: float) -> list[float]:
    """Return at most six round numbers between two."""
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= 5)
    first = math.ceil(low / step)
    return [round(place * step, 9) for place in range(first, math.floor(high / step) + 1)]


def _line(row: SweepRow, y: float, x: Callable[[float], float]) -> str:
    step, noise = row.step_ms or 0.0, row.noise_ms or 0.0
    name = row.name if len(row.name) <= 40 else f"{row.name[:39]}…"
    colour = "#1b7a3d" if row.told and (row.gain_ms or 0) > 0 else "#b3261e" if row.told else "#4e79a7"
    title = f"<title>{escape(row.name)}: {step:.2f} ± {noise:.2f} ms</title>"
    runs = "".join(f'<circle cx="{x(ms):.1f}" cy="{y}" r="3" fill="#9c9c9c"/>' for ms in row.each_ms)
    return (
        f'<text x="0" y="{y + 4}">{escape(name)}</text>{runs}'
        f'<line x1="{x(step - noise):.1f}" y1="{y}" x2="{x(step + noise):.1f}" y2="{y}" stroke="{colour}" '
        f'stroke-width="2"/><circle cx="{x(step):.1f}" cy="{y}" r="6" fill="{colour}">{title}</circle>'
    )
