"""Writers of one ClusterReport. They read records, never traces, and never print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rankscope.model import ClusterReport
from rankscope.report import contract, html, markdown, terminal
from rankscope.report.files import write_atomically

__all__ = ["WRITERS", "write_report"]

WRITERS: dict[str, Callable[[ClusterReport], str]] = {
    "json": contract.render,
    "html": html.render,
    "markdown": markdown.render,
    "terminal": terminal.render,
}
"""Format name -> function that renders a report as text."""

# JSON first: if a page could not be rendered, the numbers are already safe.
_FILES = {"json": "report.json", "markdown": "report.md", "html": "report.html"}


def write_report(report: ClusterReport, folder: Path) -> dict[str, Path]:
    """Write report.json, report.md and report.html into ``folder``, each atomically.

    Returns:
        Format name -> file.

    Raises:
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return {name: write_atomically(folder / file, WRITERS[name](report)) for name, file in _FILES.items()}
