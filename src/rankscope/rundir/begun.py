"""Refuse a folder in which no run has begun, and name the run that was probably meant."""

from __future__ import annotations

from pathlib import Path

from rankscope.errors import RunDirError
from rankscope.rundir.layout import RunDir

__all__ = ["latest_in", "refuse_folder_of_runs", "require_begun"]


def require_begun(run_dir: RunDir) -> None:
    """Raise unless a node has begun a run in the directory.

    Raises:
        RunDirError: it is missing, a folder of runs, or any other folder.
    """
    if any(run_dir.nodes.glob("*.claim.json")):
        return
    if not run_dir.path.exists():
        raise RunDirError(f"{run_dir.path} does not exist; `rankscope run` prints the run directory at its start")
    refuse_folder_of_runs(run_dir.path)
    raise RunDirError(f"{run_dir.path} is no run directory; `rankscope run` prints the run directory at its start")


def refuse_folder_of_runs(folder: Path) -> None:
    """Raise if a folder holds runs and is none itself: their ranks are not those of one job.

    Raises:
        RunDirError: it does; the message names the latest of them.
    """
    if not RunDir(folder).launch.exists() and (latest := latest_in(folder)):
        raise RunDirError(f"{folder} is a folder of runs; name one of them: {latest} is the latest")


def latest_in(folder: Path) -> Path | None:
    """Return the run directory in a folder whose launch began last; None if the folder holds none."""
    launches = [path for path in folder.glob("*/nodes/launch.json") if path.is_file()]
    return max(launches, key=lambda path: path.stat().st_mtime).parent.parent if launches else None
