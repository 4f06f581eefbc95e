"""Writers of one :class:`~rankscope.records.sweep.SweepResult`. They read the record alone, and never print."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.records.codec import to_json
from rankscope.records.sweep import SweepResult
from rankscope.sweeps.show import html, markdown, terminal

__all__ = ["SWEEP_WRITERS"]


def _json(result: SweepResult) -> str:
    return to_json(result) + "\n"


SWEEP_WRITERS: dict[str, Callable[[SweepResult], str]] = {
    "terminal": terminal.render,
    "json": _json,
    "markdown": markdown.render,
    "html": html.render,
}
"""Format name -> function that renders the table of a sweep as text."""
