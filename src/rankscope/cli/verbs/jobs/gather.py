"""``rankscope gather``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rankscope.cli.parts.arguments import Verbs
from rankscope.cli.parts.audit_log import note
from rankscope.cli.parts.console import say
from rankscope.errors import RunDirError
from rankscope.rundir.urls import is_url

__all__ = ["add_gather", "gather_verb"]


def add_gather(verbs: Verbs) -> None:
    """Add the verb."""
    gather = verbs.add_parser("gather", help="place what a job had to leave on its node, as its store was full or hung")
    gather.add_argument("path", type=Path, metavar="SPOOL", help="the folder that `rankscope run` said at its end")
    gather.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="into another run directory (default: the one of the job)"
    )
    gather.set_defaults(verb=gather_verb)


def gather_verb(arguments: argparse.Namespace) -> int:
    """Move the files that a job had to leave in a spool into its run directory."""
    from rankscope.node.late_gathering import gather_later
    from rankscope.progress import show_progress

    total = sum(path.stat().st_size for path in arguments.path.glob("trace_*.json"))
    with show_progress(say) as doing:
        progress, done = doing.bytes("gathering"), 0

        def moved(size: int) -> None:
            nonlocal done
            done += size
            progress(min(done, total), total)

        gathered = gather_later(arguments.path, arguments.run_dir, moved=moved)
    place = gathered.place
    note("gathered later", [gathered.run_dir.path], traces=str(gathered.windows))
    print(f"{place}: {gathered.windows} trace(s) placed")
    for text in gathered.notes:
        say(text)
    if gathered.left:
        say(f"not everything could be gathered: {gathered.left}")
    if gathered.ended:
        say(
            f"`rankscope analyze {place} --output {'report' if is_url(place) else f'{place}/report'}` writes the report"
        )
    return RunDirError.exit_code if gathered.left else 0
