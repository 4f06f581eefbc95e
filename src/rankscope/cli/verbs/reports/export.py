"""``rankscope export``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs, add_identity
from rankscope.cli.parts.audit_log import log_export
from rankscope.cli.parts.console import print_utf8
from rankscope.cli.parts.sealed import opened_runs, refuse_beside
from rankscope.cli.verbs.reports.report import report_of
from rankscope.errors import RunDirError

__all__ = ["add_export", "export_verb"]

_NAMES = ("openmetrics", "tensorboard", "mlflow", "wandb", "trackio")
"""As in ``exporters.table``, which is not imported to build the parser."""
_TRACES = "traces"
"""In their place: copies of the traces for other tools."""
_TO = """all but the first and the last take an extra of rankscope; traces: copies for TensorBoard's profiler plugin and
HTA, a folder for each window"""


def add_export(verbs: Verbs) -> None:
    """Add the verb."""
    export = verbs.add_parser("export", help="put the numbers of a report, or traces, where a team looks")
    export.add_argument("path", type=Path, metavar="RUN_OR_FILE", help="a run directory or its report.json")
    export.add_argument("--to", choices=(*_NAMES, _TRACES), required=True, help=_TO)
    export.add_argument(
        "--output",
        required=True,
        metavar="PLACE",
        help="a file, a tracking URI of MLflow, or a folder",
    )
    export.add_argument("--step", type=int, default=0, help="training step to file the numbers under (default: 0)")
    add_identity(export)
    export.set_defaults(verb=export_verb)


def export_verb(arguments: argparse.Namespace) -> int:
    """Export the numbers of an existing report, or the traces."""
    from rankscope.exporters.table import EXPORTERS
    from rankscope.report.notebook import Report

    if "://" not in arguments.output:
        refuse_beside([arguments.path], Path(arguments.output))
    try:
        if arguments.to == _TRACES:
            _copy_traces(arguments)
        else:
            report = Report(report_of(arguments.path, arguments))
            print_utf8(EXPORTERS[arguments.to].write(report, arguments.output, arguments.step))
    except OSError as error:
        raise RunDirError(f"{arguments.output} cannot be written ({error}); name another --output") from error
    log_export([arguments.path], arguments.output)
    return 0


def _copy_traces(arguments: argparse.Namespace) -> None:
    from rankscope.exporters.trace_files import TRACE, copy_traces

    with opened_runs([arguments.path], arguments, wanted=TRACE.fullmatch) as (run,):
        for folder in copy_traces(run, arguments.path.name, Path(arguments.output)):
            print_utf8(str(folder))
