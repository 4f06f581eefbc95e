"""Paths of a merged timeline and of a report."""

from __future__ import annotations

from pathlib import Path

from rankscope.errors import ConfigError, RunDirError
from rankscope.rundir.layout import RunDir

__all__ = ["TIMELINE", "choose_output", "report_folder"]

TIMELINE = "cluster.trace.json.gz"
"""Name of the merged timeline in a report folder. Readers of traces know it and pass it over."""


def choose_output(run: RunDir, asked: Path | None) -> tuple[Path, bool]:
    """Return the file to write, and whether it is our own and may be replaced.

    Raises:
        ConfigError: the folder is no run directory and no file was named, or the file would pass for a rank's trace.
    """
    own = run.report / TIMELINE
    if asked is None:
        if not run.manifest.is_file():
            raise ConfigError(f"{run.path} is no run directory; say where the timeline goes with --output FILE")
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
        RunDirError: neither a report nor a timeline is there.
    """
    for folder in (path / "report", path):
        if (folder / "report.html").is_file() or (folder / TIMELINE).is_file():
            return folder
    raise RunDirError(
        f"{path} holds no report; `rankscope analyze {path} --output {path}/report` writes it, "
        f"`rankscope merge {path}` the timeline"
    )
