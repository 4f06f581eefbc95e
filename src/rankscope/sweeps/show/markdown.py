"""For a pull request or a page of notes."""

from __future__ import annotations

from rankscope.compare.show.markdown import plain
from rankscope.records.sweep import SweepResult
from rankscope.sweeps.show.wording import COLUMNS, cells, lead, remarks, summary

__all__ = ["render"]


def render(result: SweepResult) -> str:
    """Return the table and a description of the runs."""
    lines = [f"**{plain(result.name)}**: {plain(summary(result))}", "", f"{plain('; '.join(lead(result)))}.", ""]
    lines += [f"| {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * (len(COLUMNS) - 1)}"]
    for place, row in enumerate(result.rows):
        lines.append(f"| {' | '.join(plain(cell) for cell in cells(row, first=not place))} |")
    lines += ["", *(f"- {plain(note)}" for note in remarks(result))]
    return "\n".join(lines).rstrip() + "\n"
