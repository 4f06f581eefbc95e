"""``rankscope analyze`` and ``rankscope report``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.cli.console import say, show
from rankscope.errors import ConfigError, ForeignFileError
from rankscope.rundir.layout import RunDir

if TYPE_CHECKING:
    from rankscope.records.manifest import RunManifest

__all__ = ["analyze_verb", "given_ranks", "manifest_of", "report_verb", "schema_verb"]


def analyze_verb(arguments: argparse.Namespace) -> int:
    """Analyse a run, a folder or trace files, and show the report."""
    missing = [path for path in arguments.paths if not path.exists()]
    if missing:
        raise ConfigError(f"{missing[0]} does not exist; name a run directory, a folder or trace files")

    from rankscope.analysis.pipeline import analyze, stages
    from rankscope.progress import work
    from rankscope.trace.files.load import load_traces

    manifest = manifest_of(arguments.paths)
    with work(say) as doing:
        load = load_traces(
            arguments.paths,
            ranks=given_ranks(arguments.given_ranks),
            cache=arguments.cache or True,
            progress=doing.bytes("loading traces"),
        )
        progress = doing.stages(stages(load, hta=arguments.hta))
        report = analyze(load, manifest, hta=arguments.hta, progress=progress)
    return show(report, arguments)


def given_ranks(words: Sequence[str]) -> dict[Path, int]:
    """``FILE=RANK`` of each ``--rank``.

    Raises:
        ConfigError: an argument of another form, or a file with two ranks.
    """
    ranks: dict[Path, int] = {}
    for word in words:
        file, _, number = word.rpartition("=")
        if not file or not (number.isascii() and number.isdigit()) or len(number) > 7:
            raise ConfigError(f"--rank {word} is not FILE=RANK; write for instance --rank trace_a.json=3")
        if ranks.setdefault(Path(file), int(number)) != int(number):
            raise ConfigError(f"--rank {word}: {file} was given rank {ranks[Path(file)]} before")
    return ranks


def manifest_of(paths: Sequence[Path]) -> RunManifest | None:
    """Read run.json, which knows more than the traces: steps, hosts, missing ranks. Several folders share none."""
    from rankscope.records.manifest import RunManifest
    from rankscope.rundir.record_files import read_record, run_limit

    run_dir = RunDir(paths[0])
    if len(paths) != 1 or not os.path.lexists(run_dir.manifest):
        return None
    try:
        return read_record(RunManifest, run_dir.manifest, run_limit(run_dir))
    except ForeignFileError as error:
        say(f"left out, so that no rank is known to be missing: {error}")
        return None


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
