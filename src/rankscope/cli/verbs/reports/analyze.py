"""``rankscope analyze``."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.cli.parts.arguments import Verbs, add_hta, add_identity, add_output, add_rank
from rankscope.cli.parts.audit_log import log_export
from rankscope.cli.parts.console import say, show
from rankscope.cli.parts.engines import add_engine, engine_of
from rankscope.cli.parts.sealed import missing_one, opened_runs, refuse_beside
from rankscope.errors import ConfigError, ForeignFileError
from rankscope.rundir.begun import refuse_folder_of_runs
from rankscope.rundir.layout import RunDir
from rankscope.rundir.urls import url_of

if TYPE_CHECKING:
    from rankscope.records.manifest import RunManifest

__all__ = ["add_analyze", "analyze_verb", "given_ranks", "manifest_of"]


_EXAMPLES = """\
examples:
  rankscope analyze rankscope_runs/run_0001
  rankscope analyze traces/ --output report          # anybody's traces of torch.profiler
  rankscope analyze traces/ --steps 13-18            # of a part
  rankscope analyze a.json b.json --rank b.json=1    # files that do not say their rank
"""


def add_analyze(verbs: Verbs) -> None:
    """Add the verb."""
    analyze = verbs.add_parser("analyze", help="report on a run, or on any traces of torch.profiler")
    analyze.add_argument("paths", nargs="+", type=Path, metavar="DIR_OR_FILE", help="run directories, folders, traces")
    add_rank(analyze)
    analyze.add_argument("--steps", metavar="A-B", help="only these steps, for instance 13-18; take four or more")
    analyze.add_argument("--window", metavar="[ATTEMPT.]N", help="only this window of several")
    add_hta(analyze)
    analyze.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="keep the columns of the traces there, as Parquet (default: beside the traces of a run directory, and for "
        "other people's traces in your cache folder)",
    )
    add_engine(analyze)
    add_identity(analyze)
    add_output(analyze)
    analyze.epilog = f"{_EXAMPLES}\n{analyze.epilog}"
    analyze.set_defaults(verb=analyze_verb)


def analyze_verb(arguments: argparse.Namespace) -> int:
    """Analyse a run, a folder or trace files, and show the report. Returns the exit code."""
    if (missing := missing_one(arguments.paths)) is not None:
        raise ConfigError(f"{missing} does not exist; name a run directory, a folder or trace files")
    for path in arguments.paths:
        refuse_folder_of_runs(path)

    from rankscope.analysis.part import only_part
    from rankscope.analysis.pipeline import analyze, stages
    from rankscope.privacy.places import with_place
    from rankscope.progress import show_progress
    from rankscope.timeline.selection import parse_steps
    from rankscope.trace.files.load import load_traces

    steps = None if arguments.steps is None else parse_steps(arguments.steps)
    window = None if arguments.window is None else _window(arguments.window)
    refuse_beside(arguments.paths, arguments.output)
    with contextlib.ExitStack() as stack:
        paths = stack.enter_context(opened_runs(arguments.paths, arguments))
        sealed = {path: given for path, given in zip(paths, arguments.paths, strict=True) if path != given}
        if sealed and arguments.engine != "local":
            raise ConfigError("an encrypted run, or one in a store, is opened on this machine only: use --engine local")
        manifest = manifest_of(paths)
        executor = stack.enter_context(engine_of(arguments, here=arguments.engine == "local"))
        if executor is not None:  # its workers may have other current folders
            paths = [path.absolute() for path in paths]
        doing = stack.enter_context(show_progress(say))
        load = load_traces(
            paths,
            ranks=given_ranks(arguments.given_ranks),
            workers=arguments.workers,
            executor=executor,
            cache=False if sealed else arguments.cache or True,
            progress=doing.bytes("loading traces"),
        )
        load, manifest = only_part(load, manifest, steps=steps, window=window)
        progress = doing.stages(stages(load, hta=arguments.hta))
        report = analyze(load, manifest, hta=arguments.hta, progress=progress)
        for path, given in sealed.items():
            report = with_place(report, path, url_of(given) or str(given))
    code = show(report, arguments)
    log_export(arguments.paths, arguments.output)
    return code


def _window(text: str) -> int | tuple[int, int]:
    match = re.fullmatch(r"(?:(\d{1,7})\.)?(\d{1,7})", text)
    if match is None:
        raise ConfigError(
            f"--window {text} is no window; write its number, or for instance 1.0 for window 0 of attempt 1"
        )
    return int(match[2]) if match[1] is None else (int(match[1]), int(match[2]))


def given_ranks(words: Sequence[str]) -> dict[Path, int]:
    """Parse the values of ``--rank``, each ``FILE=RANK``.

    Raises:
        ConfigError: a value has another form, or a file is given two ranks.
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
    """Read run.json, which has information that traces lack: steps, hosts, missing ranks.

    Returns None for several paths, which share none, and if it is missing or unreadable.
    """
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
