"""Compact form of the page's tables: what the script can generate or knows is not written."""

from __future__ import annotations

from typing import Any

from rankscope.report.common import wording as words
from rankscope.report.common.cells import Cell, Table

__all__ = ["SHOWN_ROWS", "as_data", "sorted_by"]

SHOWN_ROWS = 100
"""Number of rows written as elements of the page; the script generates the others. A folded table has none."""


def as_data(table: Table, shown: int) -> dict[str, Any]:
    """Return the rows after the first ``shown``, from which the script generates elements on request.

    As elements, a thousand rows would be most of the page's size and of its loading time. A number is its text; any
    other cell is the index of its content in ``texts``: a text, or a text and a title. A row with an anchor or a mark
    ends with both.
    """
    texts: dict[tuple[str, str], int] = {}
    rows = []
    for row in table.rows[shown:]:
        cells: list[Any] = [
            cell.text if column.numeric and not cell.title else texts.setdefault((cell.text, cell.title), len(texts))
            for column, cell in zip(table.columns, row.cells, strict=True)
        ]
        rows.append([*cells, [row.anchor, row.mark]] if row.anchor or row.mark else cells)
    return {"texts": [[text, title] if title else text for text, title in texts], "rows": rows}


def sorted_by(cell: Cell, numeric: bool) -> str | None:
    """Return the sort key of a cell, unless its text is the key."""
    if not numeric:
        return None if cell.title or cell.sort == cell.text.lower()[:80] else str(cell.sort)
    if cell.sort == "":
        return None if cell.text == words.DASH else ""
    try:
        float(cell.text.replace(",", ""))
    except ValueError:
        return str(cell.sort)
    return None
