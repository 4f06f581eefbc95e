"""Output on the terminal: messages on stderr, reports on stdout."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import sys
from typing import TYPE_CHECKING

from rankscope.errors import RunDirError

if TYPE_CHECKING:
    from rankscope.records.report import ClusterReport

__all__ = ["hold_standard_descriptors", "print_utf8", "say", "show", "show_summary", "tell"]


FORMATS = ("terminal", "json", "markdown", "html")
_READER_S = 2.0
"""Seconds after which a line is dropped if nothing reads standard error: a stopped terminal must not stop a job."""


def say(text: str) -> None:
    """Print one line to stderr, prefixed with the program's name.

    Never raises, and drops the rest of the line if standard error is not read for 2 s.
    """
    _write_to_stderr(f"rankscope: {text}\n")


def hold_standard_descriptors() -> None:
    """Open descriptors 0 to 2 if they are closed, so that no file opened later becomes a standard stream.

    They are opened on the null device and closed in every child process, which sees them as without rankscope.
    """
    with contextlib.suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
            pass
        os.close(descriptor)


def show_summary(report: ClusterReport) -> None:
    """Show the report of a run that has just ended, on standard error. Never raises: the exit code is the job's."""
    with contextlib.suppress(Exception):
        from rich.console import Console

        from rankscope.report.formats import terminal

        console = Console(stderr=True)
        if sys.stderr is not None and sys.stderr.isatty():
            console.print()
            terminal.show(report, console)
        else:
            unicode = "utf" in console.encoding.lower()
            _write_to_stderr(f"\n{terminal.render(report, console.width, unicode=unicode).rstrip()}\n")


def tell(text: str) -> None:
    """Print a line to stderr as it is. Never raises."""
    _write_to_stderr(f"{text}\n")


def _write_to_stderr(text: str) -> None:
    """Write unbuffered, because a buffer that Python cannot flush at exit changes the exit code to 120."""
    with contextlib.suppress(Exception):
        stream = sys.stderr
        if stream is None:  # descriptor 2 was closed when Python started
            return
        try:
            descriptor = stream.fileno()
            stream.flush()
        except (OSError, ValueError, AttributeError):  # a replacement without a descriptor, in a notebook or a test
            print(text, end="", file=stream, flush=True)
            return
        data = text.encode(stream.encoding or "utf-8", "backslashreplace")
        while data and select.select([], [descriptor], [], _READER_S)[1]:
            data = data[os.write(descriptor, data[: select.PIPE_BUF]) :]


def show(report: ClusterReport, arguments: argparse.Namespace) -> int:
    """Print a report in the requested format, and write its files. Returns the exit code, 0.

    Raises:
        RunDirError: the folder of ``--output`` cannot be written.
    """
    from rankscope.report import WRITERS, write_report
    from rankscope.report.formats.json import in_first_form

    if arguments.output is not None:
        try:
            written = write_report(report, arguments.output)
        except OSError as error:
            raise RunDirError(f"{arguments.output} cannot be written ({error}); name another --output") from error
        for name, path in written.items():
            say(f"{name}: {path}")
    if arguments.format == "terminal":
        from rich.console import Console

        from rankscope.report.formats.terminal import show

        show(report, Console())  # rich respects NO_COLOR, COLUMNS and the capabilities of the terminal
    else:
        known = in_first_form(report) if arguments.schema and arguments.format == "json" else report
        print_utf8(WRITERS[arguments.format](known).rstrip("\n"))
    return 0


def print_utf8(text: str) -> None:
    """Print to stdout in UTF-8, whatever the encoding of the terminal: JSON, Markdown and HTML are UTF-8."""
    try:
        stream = sys.stdout.buffer
    except AttributeError:  # a replacement without a buffer, in a notebook or a test
        print(text)
        return
    sys.stdout.flush()
    stream.write(f"{text}\n".encode("utf-8", "replace"))
    stream.flush()
