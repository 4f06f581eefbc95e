"""Arguments that several verbs share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TypeAlias

from rankscope.cli.parts.console import FORMATS

__all__ = ["Verbs", "add_hta", "add_identity", "add_output", "add_rank", "add_settings"]

Verbs: TypeAlias = "argparse._SubParsersAction[Any]"  # noqa: SLF001 - what add_subparsers returns has no public name
"""Type of the object to which a verb adds its parser."""


def add_hta(parser: argparse.ArgumentParser) -> None:
    """Add the flag that selects whether Holistic Trace Analysis is part of the report."""
    parser.add_argument("--no-hta", dest="hta", action="store_false", help="leave out Holistic Trace Analysis")
    parser.add_argument(
        "--hta-all", dest="hta", action="store_const", const="all", help="Holistic Trace Analysis of each of many ranks"
    )
    parser.set_defaults(hta=True)


def add_identity(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names the key of an encrypted run."""
    parser.add_argument(
        "--identity", type=Path, metavar="FILE", help="the key of age with which an encrypted run is read"
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the flags for configuration settings, as in ``run``."""
    parser.add_argument(
        "-S",
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change the configuration, as for `rankscope run`",
    )
    parser.add_argument(
        "--config-dir",
        dest="config_dirs",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="a folder with configuration groups of your own",
    )


def add_rank(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names the ranks of traces without metadata."""
    parser.add_argument(
        "--rank",
        dest="given_ranks",
        metavar="FILE=RANK",
        action="append",
        default=[],
        help="which rank a trace is of, where neither its content nor its name says so; may be given several times",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the flags that select how a report is shown and where it is written."""
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="what goes to stdout (default: terminal)")
    parser.add_argument(
        "--schema",
        choices=("1",),
        help="write --format json as schema 1.0 began, for readers that know no newer kind of verdict: memory_bound is "
        "balanced there, contended is insufficient_data (default: as it is now)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="also write report.html, report.json, report.md there"
    )
