"""``rankscope runs list``, ``show`` and ``prune``."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.cli.parts.arguments import Verbs, add_identity
from rankscope.cli.parts.audit_log import note
from rankscope.cli.parts.console import say
from rankscope.cli.parts.sealed import OF_MANIFEST, opened_runs
from rankscope.errors import ConfigError, RunDirError
from rankscope.rundir.foreign import printable, shown
from rankscope.rundir.layout import RUNS_FOLDER, RunDir

if TYPE_CHECKING:
    from rankscope.rundir.runs import Run

__all__ = ["add_runs"]

_DAY_S = 86_400.0


def add_runs(verbs: Verbs) -> None:
    """Add the verbs."""
    runs = verbs.add_parser("runs", help="list a folder of runs, show one, free the space of old ones")
    kinds = runs.add_subparsers(title="verbs", metavar="VERB", required=True)
    listed = kinds.add_parser("list", help="all runs of a folder, the latest last")
    listed.add_argument(
        "path", nargs="?", type=Path, default=RUNS_FOLDER, metavar="FOLDER", help=f"default: {RUNS_FOLDER}"
    )
    listed.add_argument("--format", choices=("text", "json"), default="text", help="what to print (default: text)")
    listed.set_defaults(verb=list_verb)
    show = kinds.add_parser("show", help="what is known of one run")
    show.add_argument("path", type=Path, metavar="RUN")
    add_identity(show)
    show.set_defaults(verb=show_verb)
    prune = kinds.add_parser("prune", help="remove traces of old runs; their reports stay")
    prune.add_argument(
        "path", nargs="?", type=Path, default=RUNS_FOLDER, metavar="FOLDER", help=f"default: {RUNS_FOLDER}"
    )
    prune.add_argument("--keep", type=int, default=10, metavar="N", help="leave the N latest alone (default: 10)")
    prune.add_argument("--older-than", type=float, default=0.0, metavar="DAYS", help="only what ended before")
    prune.add_argument("--whole", action="store_true", help="remove the runs, with reports and all")
    prune.add_argument("--yes", action="store_true", help="do it; otherwise it is only said what would go")
    prune.set_defaults(verb=prune_verb)


def list_verb(arguments: argparse.Namespace) -> int:
    """Print one line for each run."""
    runs = _runs(arguments.path)
    if arguments.format == "json":
        print(json.dumps([_as_json(run) for run in runs], indent=2))
        return 0
    names = [shown(run.name) for run in runs]
    wide = max(map(len, names))
    for run, name in zip(runs, names, strict=True):
        print(_cut(f"{name:{wide}}  {_when(run)}  {_megabytes(run.size):>10}  {_what(run)}"))
    return 0


def _as_json(run: Run) -> dict[str, object]:
    return {
        "path": str(run.dir.path),
        "finished": run.finished,
        "time": run.time,
        "bytes": run.size,
        "prunable_bytes": sum(size for _, size in run.recorded),
        "verdict": run.report.verdict.sentence if run.finished and run.report is not None else None,
        "ranks": run.report.verdict.ranks if run.finished and run.report is not None else None,
    }


def show_verb(arguments: argparse.Namespace) -> int:
    """Print the details of one run."""
    (run, *others) = _runs(arguments.path)
    if others:
        raise RunDirError(
            f"{arguments.path} holds {len(others) + 1} runs; name one of them, or use `rankscope runs list`"
        )
    manifest = run.manifest
    if run.encrypted:
        from rankscope.rundir.runs import Run

        with opened_runs([run.dir.path], arguments, wanted=OF_MANIFEST.match) as (plain,):
            manifest = Run(RunDir(plain)).manifest
    print(f"{shown(run.dir.path)}: {'ended' if run.finished else 'begun'} {_when(run)}")
    if manifest is not None:
        records = [record for window in manifest.windows for record in window.records]
        whole = sum(record.status == "ok" for record in records)
        print(_cut(f"command     {' '.join(manifest.argv)}"))
        print(f"job         {manifest.world_size or 'unknown'} ranks on {len(manifest.hosts)} host(s)")
        print(f"windows     {len(manifest.windows)}, with {whole} of {len(records)} traces whole")
    recorded = sum(size for _, size in run.recorded)
    print(f"size        {_megabytes(run.size)}, of which {_megabytes(recorded)} can be pruned")
    print(f"verdict     {printable(_what(run))}")
    return 0


def prune_verb(arguments: argparse.Namespace) -> int:
    """Delete traces or whole directories of old runs."""
    from rankscope.rundir.runs import remove, to_prune

    if arguments.keep < 0 or not arguments.older_than >= 0:
        raise ConfigError("--keep and --older-than are counts from 0 on; leave them out for the defaults")
    before = time.time() - arguments.older_than * _DAY_S
    free = count = 0
    for run, why in to_prune(_runs(arguments.path), keep=arguments.keep, before=before, whole=arguments.whole):
        if why is not None:
            say(f"{shown(run.dir.path)} stays: {why}")
            continue
        size = sum(size for _, size in (run.files if arguments.whole else run.recorded))
        print(f"{shown(run.dir.path)}  {_megabytes(size)}")
        if arguments.yes and not arguments.whole:
            note("pruned", [run.dir.path])
        free, count = free + (remove(run, whole=arguments.whole) if arguments.yes else size), count + 1
    done = "freed" if arguments.yes else "would be free; add --yes to remove them"
    print(f"{count} run(s), {_megabytes(free)} {done}")
    return 0


def _runs(folder: Path) -> list[Run]:
    from rankscope.rundir.runs import find_runs

    runs = find_runs(folder, say)
    if not runs:
        raise RunDirError(f"{folder} holds no run; name a folder that `rankscope run` has written to")
    return runs


def _what(run: Run) -> str:
    if not run.finished:
        return "running, or it was killed"
    if run.encrypted:
        return "encrypted"
    if run.manifest is None:
        return "its run.json cannot be read"
    return run.report.verdict.sentence if run.report is not None else "no report"


def _when(run: Run) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.time))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _cut(line: str) -> str:
    line = printable(line)
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width else f"{line[: width - 1]}…"
