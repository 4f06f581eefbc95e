"""Copy the traces of a run to folders and names that TensorBoard's profiler plugin and HTA can open.

The plugin reads the ``*.pt.trace.json.gz`` of a folder; HTA reads every ``.json`` and ``.gz`` of a folder as a trace,
including the records that a run directory has next to its traces.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from rankscope.errors import RunDirError
from rankscope.rundir.files import temporary_beside
from rankscope.rundir.foreign import open_foreign

__all__ = ["TRACE", "copy_traces"]

TRACE = re.compile(r"attempt_(\d+)/window_(\d+)/(rank_\d+)\.trace\.json\.gz")
"""Path of a trace in a run directory."""
_MOST_BYTES = 1 << 36


def copy_traces(run: Path, name: str, destination: Path) -> list[Path]:
    """Copy all traces of a run directory; existing files of the same names are replaced.

    Args:
        run: the run directory.
        name: name of the run, with which the names of the folders begin.
        destination: folder in which a folder for each window is created.

    Returns:
        The folders.

    Raises:
        RunDirError: the run has no traces.
        ForeignFileError: a trace is not a regular file.
        OSError: the destination cannot be written.
    """
    folders = []
    for path in sorted(run.glob("attempt_*/window_*/rank_*.trace.json.gz")):
        match = TRACE.fullmatch(path.relative_to(run).as_posix())
        if match is None:
            continue
        attempt, window, rank = match.groups()
        folder = destination / f"{name}_attempt_{attempt}_window_{window}"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{rank}.pt.trace.json.gz"
        with temporary_beside(target) as temporary:
            with open_foreign(path, _MOST_BYTES) as source, temporary.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            temporary.replace(target)
        folders.append(folder)
    if not folders:
        raise RunDirError(
            f"{run} has no traces of its own to copy; they may have been reduced, or removed by `runs prune`"
        )
    return list(dict.fromkeys(folders))
