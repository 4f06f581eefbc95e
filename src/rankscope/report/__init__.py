"""Writers of one ClusterReport. They read records, never traces, and never print."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from rankscope.errors import ForeignFileError
from rankscope.records.report import ClusterReport
from rankscope.report.common.rounding import tidy
from rankscope.report.formats import html, markdown, parquet, terminal
from rankscope.report.formats import json as contract
from rankscope.rundir.files import rewrite
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record, run_limit

__all__ = ["FORMATS", "TIMELINE", "WRITERS", "link_timeline", "write_report"]

TIMELINE = "cluster.trace.json.gz"
"""Name of the merged timeline in a report folder; the page links to it."""

WRITERS: dict[str, Callable[[ClusterReport], str]] = {
    "json": contract.render,
    "html": html.render,
    "markdown": markdown.render,
    "terminal": terminal.render,
}
"""Format name -> function that renders a report as text."""

# JSON first, so that the numbers are stored even if a page cannot be rendered.
_FILES = {"json": "report.json", "markdown": "report.md", "html": "report.html"}


FORMATS = tuple(_FILES)
"""Names of the formats that a report is written in."""


def write_report(report: ClusterReport, folder: Path, formats: Collection[str] = FORMATS) -> dict[str, Path]:
    """Write report.json, report.md and report.html into ``folder``, or those of them that are asked for, each
    atomically.

    With many ranks, report.parquet is written too.

    Returns:
        Format name -> file.

    Raises:
        OSError: the folder cannot be created or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, rounded = {}, tidy(report)
    for name, file in _FILES.items():
        if name not in formats:
            continue
        text = _page(rounded, folder) if name == "html" else WRITERS[name](rounded)
        written[name] = rewrite(folder / file, text)
    ranks = folder / "report.parquet"
    if len(report.ranks) > parquet.MANY:
        parquet.write_ranks(report, ranks)
        written["parquet"] = ranks
    else:
        ranks.unlink(missing_ok=True)  # of an earlier report
    return written


def link_timeline(folder: Path) -> None:
    """Write report.html again, now that there is a timeline beside it. Does nothing without a readable report.json.

    Raises:
        OSError: the folder cannot be written.
    """
    try:
        report = read_record(ClusterReport, folder / _FILES["json"], run_limit(RunDir(folder.parent)))
    except ForeignFileError:
        return
    rewrite(folder / _FILES["html"], _page(report, folder))


def _page(report: ClusterReport, folder: Path) -> str:
    return html.render(report, timeline=TIMELINE if (folder / TIMELINE).is_file() else None)
