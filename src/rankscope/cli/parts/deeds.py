"""What a verb did with runs, kept in their directories."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from rankscope.rundir.audit import note_deed, run_of
from rankscope.rundir.layout import RunDir

__all__ = ["note", "note_export"]


def note(deed: str, paths: Iterable[Path | str], **more: str) -> None:
    """Keep a deed in each run that the paths are, or lie in. Never raises; of what is no run nothing is kept."""
    for path in dict.fromkeys(run.path for run in map(run_of, map(Path, paths)) if run is not None):
        note_deed(RunDir(path), deed, sys.argv, sealed=False, **more)


def note_export(paths: Iterable[Path | str], output: object) -> None:
    """Keep that something of runs was written elsewhere; without an output nothing was."""
    if output is not None:
        note("exported", paths, to=str(output))
