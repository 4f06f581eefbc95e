"""Audit log of verbs: entries in the directories of the runs that a verb has read or changed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from rankscope.rundir.audit import append_action, run_of
from rankscope.rundir.layout import RunDir

__all__ = ["log_export", "note"]


def note(action: str, paths: Iterable[Path | str], **more: str) -> None:
    """Append an entry to the audit log of each run to which one of the paths belongs. Never raises.

    Args:
        action: what was done, in the past tense: ``exported``.
        paths: run directories, or files in them. A path outside of any run is ignored.
        **more: further fields of the entry.
    """
    for path in dict.fromkeys(run.path for run in map(run_of, map(Path, paths)) if run is not None):
        append_action(RunDir(path), action, sys.argv, sealed=False, **more)


def log_export(paths: Iterable[Path | str], output: object) -> None:
    """Append ``exported`` to the audit logs if something was written to ``output``; None: nothing was."""
    if output is not None:
        note("exported", paths, to=str(output))
