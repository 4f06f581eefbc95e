"""``rankscope report`` and ``schema``: show an existing report, and print JSON Schemas."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.cli.parts.arguments import Verbs, add_identity, add_output
from rankscope.cli.parts.audit_log import log_export
from rankscope.cli.parts.console import show
from rankscope.cli.parts.sealed import opened_runs, refuse_beside
from rankscope.cli.verbs.reports.analyze import manifest_of

if TYPE_CHECKING:
    from rankscope.records.report import ClusterReport

__all__ = ["add_report", "report_of", "report_verb", "schema_verb"]


def add_report(verbs: Verbs) -> None:
    """Add the verbs."""
    report = verbs.add_parser("report", help="show a report again, in another format")
    report.add_argument(
        "path", type=Path, metavar="RUN_OR_FILE", help="a run directory, its report folder or report.json"
    )
    add_identity(report)
    add_output(report)
    report.set_defaults(verb=report_verb)

    schema = verbs.add_parser(
        "schema", help="print the JSON Schema of report.json, run.json, or what diff and sweep print"
    )
    schema.add_argument(
        "name", choices=("report", "run", "diff", "sweep"), help="report.json, run.json, or what diff and sweep print"
    )
    schema.set_defaults(verb=schema_verb)


def report_verb(arguments: argparse.Namespace) -> int:
    """Show an existing report. Returns the exit code."""
    refuse_beside([arguments.path], arguments.output)
    code = show(report_of(arguments.path, arguments), arguments)
    log_export([arguments.path], arguments.output)
    return code


def report_of(path: Path, arguments: argparse.Namespace) -> ClusterReport:
    """Read the report of a run. An encrypted run has none, so its traces are analysed.

    Args:
        path: a run directory, its report folder or report.json.
        arguments: parsed arguments, with ``identity``.
    """
    from rankscope.privacy.unlock import is_sealed
    from rankscope.report.read import read_report

    if not is_sealed(path):
        return read_report(path)
    from rankscope.analysis.pipeline import analyze
    from rankscope.privacy.places import with_place
    from rankscope.trace.files.load import load_traces

    with opened_runs([path], arguments) as (plain,):
        return with_place(analyze(load_traces([plain], cache=False), manifest_of([plain])), plain, str(path))


def schema_verb(arguments: argparse.Namespace) -> int:
    """Print the JSON Schema of a file that rankscope writes."""
    import json

    from rankscope.report.formats.json import schema

    print(json.dumps(schema(arguments.name), indent=1))
    return 0
