"""Writers of one :class:`~rankscope.records.diff.RunDiff`. They read the record alone, and never print."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.compare.show import html, json, markdown, terminal
from rankscope.records.diff import RunDiff

__all__ = ["DIFF_WRITERS"]

DIFF_WRITERS: dict[str, Callable[[list[RunDiff]], str]] = {
    "terminal": terminal.render,
    "json": json.render,
    "markdown": markdown.render,
    "html": html.render,
}
"""Format name -> function that renders the differences of some runs from one as text."""
