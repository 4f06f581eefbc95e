"""Paths of a merged timeline and of a report."""

from __future__ import annotations

from pathlib import Path

from rankscope.errors import ConfigError, RunDirError
from rankscope.rundir.begun import refuse_folder_of_runs
from rankscope.rundir.layout import RunDir

__all__ = ["TIMELINE", "choose_output", "report_folder"]

TIMELINE = "cluster.trace.json.gz"
"""Name of the merged timeline in a report folder. Readers of traces ignore files of this name."""


def choose_output(run: RunDir, asked: Path | None) -> tuple[Path, bool]:
    """Return the file to write, and whether it is rankscope's own and may be replaced.

    Raises:
        ConfigError: the folder is not a run directory and no file was named, or the file would be taken for a rank's
            trace.
    """
    own = run.report / TIMELINE
    if asked is None:
        if not run.manifest.is_file():
            if run.path.is_dir() and not any(run.path.iterdir()):
                raise ConfigError(f"{run.path} is empty: it holds no traces to merge; name a run directory")
            there = "holds no run.json, so it is no run directory" if run.path.is_dir() else "is no run directory"
            raise ConfigError(
                f"{run.path} {there}; for the traces of others say where the timeline goes: --output FILE"
            )
        return own, True
    if asked.is_dir():
        raise ConfigError(f"--output {asked} is a folder; name a file in it, for instance {asked / TIMELINE}")
    if asked.resolve() == own.resolve() and run.manifest.is_file():
        return own, True
    if asked.name != TIMELINE and asked.resolve().is_relative_to(run.path.resolve()):
        raise ConfigError(
            f"--output {asked} would be read as a rank's trace there; call it {TIMELINE} or put it elsewhere"
        )
    return asked, False


def report_folder(path: Path) -> Path:
    """Return the folder with report.html, of a run directory or the folder itself.

    Raises:
        RunDirError: it has neither a report nor a timeline.
    """
    for folder in (path / "report", path):
        if (folder / "report.html").is_file() or (folder / TIMELINE).is_file():
            return folder
    if not path.exists():
        raise RunDirError(f"{path} does not exist; name a run directory or its report folder")
    refuse_folder_of_runs(path)
    if path.is_dir() and not any(path.iterdir()):
        raise RunDirError(
            f"{path} is empty: it holds no report, no timeline and no traces to make them from; name a run directory"
        )
    raise RunDirError(
        f"{path} holds no report; `rankscope analyze {path} --output {path}/report` writes it, "
        f"`rankscope merge {path}` the timeline"
    )
