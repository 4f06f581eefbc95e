"""For a terminal of 80 columns."""

from __future__ import annotations

import textwrap

from rankscope.records.sweep import SweepResult
from rankscope.sweeps.show.wording import COLUMNS, cells, lead, remarks, summary

__all__ = ["render"]

WIDTH = 80
_LEAST_NAME = 16


def render(result: SweepResult, width: int = WIDTH) -> str:
    """Return the table; names of settings that are too long for it get a line of their own."""
    rows = [COLUMNS, *(cells(row, first=not place) for place, row in enumerate(result.rows))]
    shown = [place for place in range(1, len(COLUMNS)) if any(row[place] for row in rows[1:])]
    wide = {place: max(len(row[place]) for row in rows) for place in shown}
    space = width - sum(wide.values()) - 2 * len(shown)
    name = max(min(max(len(row[0]) for row in rows), space), _LEAST_NAME)
    lines = [
        _wrapped(f"Sweep {result.name}: {summary(result)}".rstrip(": "), width),
        *(_wrapped(line, width) for line in lead(result)),
        "",
    ]
    for row in rows:
        numbers = "".join(f"  {row[place]:>{wide[place]}}" for place in shown)
        if len(row[0]) <= name:
            lines.append(f"{row[0]:{name}}{numbers}".rstrip())
        else:
            lines += [_wrapped(row[0], width), f"{'':{name}}{numbers}".rstrip()]
    notes = remarks(result)
    lines += [""] if notes else []
    lines += [_wrapped(f"Note  {note}", width, "      ") for note in notes]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)
