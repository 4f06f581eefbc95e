"""``rankscope report`` and ``schema``: what was written before, and its form."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs, add_output
from rankscope.cli.parts.console import show

__all__ = ["add_report", "report_verb", "schema_verb"]


def add_report(verbs: Verbs) -> None:
    """Add the verbs."""
    report = verbs.add_parser("report", help="show a report again, in another format")
    report.add_argument(
        "path", type=Path, metavar="RUN_OR_FILE", help="a run directory, its report folder or report.json"
    )
    add_output(report)
    report.set_defaults(verb=report_verb)

    schema = verbs.add_parser("schema", help="print the JSON Schema of report.json, run.json, or what diff prints")
    schema.add_argument("name", choices=("report", "run", "diff"), help="which of them")
    schema.set_defaults(verb=schema_verb)


def report_verb(arguments: argparse.Namespace) -> int:
    """Show a report that was written before."""
    from rankscope.report.read import read_report

    return show(read_report(arguments.path), arguments)


def schema_verb(arguments: argparse.Namespace) -> int:
    """Print the JSON Schema of a file that rankscope writes."""
    import json

    from rankscope.report.formats.json import schema

    print(json.dumps(schema(arguments.name), indent=1))
    return 0
