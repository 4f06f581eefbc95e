"""Tables as plain data: columns with their definitions, rows of cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankscope.report.common import plain_text
from rankscope.report.common import wording as words
from rankscope.report.common.metrics import Metric

__all__ = ["Cell", "Column", "Row", "Table", "assemble", "metric", "number", "numbers", "text"]


class Column(NamedTuple):
    """A column's head. ``hover`` is the number's definition, empty for plain text."""

    label: str
    unit: str = ""
    hover: str = ""
    numeric: bool = False


class Cell(NamedTuple):
    """Displayed text, sort key, and the full text if the displayed one was shortened."""

    text: str
    sort: float | str = ""
    title: str = ""


class Row(NamedTuple):
    """Cells, the element's id and a mark (``named`` for the verdict's ranks, or a status)."""

    cells: list[Cell]
    anchor: str = ""
    mark: str = ""


class Table(NamedTuple):
    """A table with a name that is unique in the page."""

    name: str
    columns: list[Column]
    rows: list[Row]
    note: str = ""


def metric(defined: Metric, label: str | None = None) -> Column:
    """Return the head of a column of numbers. ``label`` replaces the label of the definition."""
    return Column(label or defined.label, defined.unit, defined.hover, numeric=True)


def numbers(values: Sequence[float | None], decimals: int | None = None) -> list[Cell]:
    """Format one column with the same number of decimals throughout, so that digits line up."""
    if decimals is None:
        largest = max((abs(value) for value in values if value is not None), default=0.0)
        decimals = 0 if largest >= 10_000 else 1 if largest >= 100 else 2 if largest >= 1 else 3
    return [Cell(words.DASH, "") if v is None else Cell(f"{v:,.{decimals}f}", v) for v in values]


def text(value: object, limit: int = 60) -> Cell:
    """Return a cell with a name or a phrase; the middle of a long one is removed."""
    full = plain_text.one_line(words.DASH if value is None else value, 1000)
    short = plain_text.elide(full, limit)
    return Cell(short, full.lower()[:80], full if full != short else "")


def assemble(columns: list[list[Cell]]) -> list[list[Cell]]:
    """Convert columns to rows."""
    return [list(cells) for cells in zip(*columns, strict=True)]


def number(value: int | None) -> Cell:
    """Return a cell with a rank, or a dash."""
    return Cell(words.DASH, "") if value is None else Cell(str(value), value)
