"""``rankscope export``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs
from rankscope.cli.parts.console import print_utf8
from rankscope.errors import RunDirError

__all__ = ["add_export", "export_verb"]

_NAMES = ("openmetrics", "tensorboard", "mlflow")
"""As in ``exporters.table``, which is not imported to build the parser."""


def add_export(verbs: Verbs) -> None:
    """Add the verb."""
    export = verbs.add_parser("export", help="put the numbers of a report where a team looks")
    export.add_argument("path", type=Path, metavar="RUN_OR_FILE", help="a run directory or its report.json")
    export.add_argument("--to", choices=_NAMES, required=True, help="the last two take an extra of rankscope")
    export.add_argument(
        "--output", required=True, metavar="PLACE", help="a file, a folder of TensorBoard, or a tracking URI of MLflow"
    )
    export.add_argument("--step", type=int, default=0, help="training step to file the numbers under (default: 0)")
    export.set_defaults(verb=export_verb)


def export_verb(arguments: argparse.Namespace) -> int:
    """Write the numbers of a report that was made before."""
    from rankscope.exporters.table import EXPORTERS
    from rankscope.report.notebook import Report
    from rankscope.report.read import read_report

    report = Report(read_report(arguments.path))
    try:
        print_utf8(EXPORTERS[arguments.to].write(report, arguments.output, arguments.step))
    except OSError as error:
        raise RunDirError(f"{arguments.output} cannot be written ({error}); name another --output") from error
    return 0
