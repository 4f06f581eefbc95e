"""Messages for the person at the terminal."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankscope.records.report import ClusterReport

__all__ = ["say", "show", "shown_in_colour"]


FORMATS = ("terminal", "json", "markdown", "html")


def say(text: str) -> None:
    """Print one line to stderr, with the program's name."""
    # A closed stderr must not end a training job.
    with contextlib.suppress(OSError, ValueError):
        print(f"rankscope: {text}", file=sys.stderr, flush=True)


def shown_in_colour(folder: Path | None) -> bool:
    """Show the report of a run on a terminal; False where the plain summary has to do."""
    if folder is None or not sys.stderr.isatty():
        return False
    try:
        from rich.console import Console

        from rankscope.records.report import ClusterReport
        from rankscope.report.formats.terminal import show
        from rankscope.rundir.layout import RunDir
        from rankscope.rundir.record_files import read_record, run_limit

        report = read_record(ClusterReport, folder / "report.json", run_limit(RunDir(folder.parent)))
        console = Console(stderr=True)
        console.print()
        show(report, console)
    except Exception:  # the job's exit code matters more than colours
        return False
    return True


def show(report: ClusterReport, arguments: argparse.Namespace) -> int:
    """Print a report in the format asked for, and write its files."""
    from rankscope.report import WRITERS, write_report

    if arguments.output is not None:
        for name, path in write_report(report, arguments.output).items():
            say(f"{name}: {path}")
    if arguments.format == "terminal" and sys.stdout.isatty():
        from rich.console import Console

        from rankscope.report.formats.terminal import show

        show(report, Console())  # rich knows about NO_COLOR and what the terminal can do
    else:
        print(WRITERS[arguments.format](report).rstrip("\n"))
    return 0
