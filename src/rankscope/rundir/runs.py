"""List the runs in a folder, and remove the large files of old runs, whose reports stay.

A run is finished when it has a run.json. A run without it may still be running, on another node, and is never
changed. Only files with names that rankscope gives are removed; symbolic links are not followed.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.records.manifest import RunManifest
from rankscope.records.report import ClusterReport
from rankscope.rundir.audit import AUDITS
from rankscope.rundir.layout import ARRIVING, RunDir
from rankscope.rundir.record_files import read_record, run_limit

__all__ = ["RECORDED", "Run", "find_runs", "remove", "to_prune"]

RECORDED = re.compile(
    r"attempt_\d+/(?:window_\d+/(?:rank_\d+\.(?:trace\.json\.gz|parquet|memory\.pickle)|columns/[^/]+\.columns)"
    r"|rank_\d+\.oom\.memory\.pickle)"
    r"(?:\.age)?"
)
"""Large files of a run, by their path below its directory: traces, their columns, memory snapshots."""
_OWN = re.compile(
    rf"(?:(?:run|agent|kept)\.json|{AUDITS}|metrics\.prom|(?:columns/)?[^/]+\.columns"
    r"|attempt_\d+/(?:window_\d+/rank_\d+\.json|pulse/rank_\d+\.bin\.gz)"
    r"|(?:nodes|live|stuck|requests|announcements)/[^/]+\.json|stuck/question"
    r"|report/[^/]+\.(?:html|json|md|parquet|json\.gz))(?:\.age|\.sig)?"
    rf"|{re.escape(ARRIVING)}.*|(?:.*/)?\.[^/]+"
)
"""The other files that rankscope writes into a run directory, by their path below it."""


@dataclass(frozen=True)
class Run:
    """One run directory."""

    dir: RunDir

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.dir.path.name

    @property
    def finished(self) -> bool:
        """Whether it has ended and all that could be gathered is there."""
        return self.dir.ended

    @property
    def encrypted(self) -> bool:
        """Whether the run is encrypted."""
        return self.dir.sealed_manifest.exists() and not self.dir.manifest.exists()

    @cached_property
    def time(self) -> float:
        """When the run ended, or if it has not, when it began; seconds since 1970."""
        for mark in (self.dir.manifest, self.dir.sealed_manifest, self.dir.launch, self.dir.agent_spec, self.dir.path):
            with contextlib.suppress(OSError):
                return mark.stat().st_mtime
        return 0.0  # it is being removed

    @cached_property
    def manifest(self) -> RunManifest | None:
        """Its run.json; None if it cannot be read."""
        try:
            return read_record(RunManifest, self.dir.manifest, run_limit(self.dir))
        except ForeignFileError:
            return None

    @cached_property
    def report(self) -> ClusterReport | None:
        """Its report; None if there is none, or it cannot be read."""
        try:
            return read_record(ClusterReport, self.dir.report / "report.json", run_limit(self.dir))
        except ForeignFileError:
            return None

    @cached_property
    def files(self) -> list[tuple[Path, int]]:
        """All files of the run, with sizes in bytes, as far as its folders can be read."""
        return list(_walk(self.dir.path))

    @property
    def size(self) -> int:
        """Size of all files, bytes."""
        return sum(size for _, size in self.files)

    @property
    def recorded(self) -> list[tuple[Path, int]]:
        """The files that :data:`RECORDED` matches, with sizes in bytes."""
        root = self.dir.path
        return [(path, size) for path, size in self.files if RECORDED.fullmatch(path.relative_to(root).as_posix())]

    @property
    def foreign(self) -> list[str]:
        """The files in its directory that rankscope does not write, by their path below it."""
        names = (path.relative_to(self.dir.path).as_posix() for path, _ in self.files)
        return [name for name in names if not (_OWN.fullmatch(name) or RECORDED.fullmatch(name))]


def find_runs(folder: Path, left_out: Callable[[str], None] = lambda _: None) -> list[Run]:
    """Return the runs in a folder, or the folder itself if it is a run; the latest last.

    Args:
        folder: the folder.
        left_out: called with the reason for each folder in it that cannot be read.

    Raises:
        RunDirError: the folder cannot be read.
    """

    def is_run(path: Path) -> bool:
        try:
            return _is_run(path)
        except OSError as error:
            left_out(f"{path} is left out: it cannot be read ({error.strerror})")
            return False

    try:
        found = [folder] if _is_run(folder) else [path for path in folder.iterdir() if is_run(path)]
    except OSError as error:
        raise RunDirError(f"{folder} cannot be read ({error.strerror}); name a folder of runs") from error
    return sorted((Run(RunDir(path)) for path in found), key=lambda run: (run.time, run.name))


def to_prune(runs: Sequence[Run], *, keep: int, before: float, whole: bool = False) -> Iterator[tuple[Run, str | None]]:
    """Select finished runs that ended before a time, except for the latest ones.

    Args:
        runs: the result of :func:`find_runs`.
        keep: number of the latest finished runs that are not selected.
        before: seconds since 1970.
        whole: whether whole runs are to be removed; otherwise report, records and step logs stay.

    Yields:
        A selected run with None, or with the reason why it cannot be pruned.
    """
    finished = [run for run in runs if run.finished]
    for run in finished[: max(len(finished) - keep, 0)]:
        if run.time >= before:
            continue
        if run.encrypted and not whole:
            yield run, "it is encrypted, and keeps no report that would stay; --whole removes all of it"
        elif run.manifest is None and not run.encrypted:
            yield run, "its run.json cannot be read"
        elif whole and (foreign := run.foreign):
            some = ", ".join(foreign[:3]) + (" ..." if len(foreign) > 3 else "")
            yield run, f"rankscope did not write all that is in it ({some}); move that away, or leave out --whole"
        elif not whole and run.recorded and run.report is None:
            yield run, f"it has no report yet; `rankscope analyze {run.dir.path} --output {run.dir.report}` makes it"
        elif whole or run.recorded:
            yield run, None


def remove(run: Run, *, whole: bool = False) -> int:
    """Remove the large files of a run, or the whole run. What is left when this is interrupted can be removed again.

    Returns:
        Bytes that were freed.

    Raises:
        RunDirError: a file cannot be removed, or the run is not finished.
    """
    if not run.finished or run.dir.path.is_symlink():
        raise RunDirError(f"{run.dir.path} is no finished run, and stays")
    gone = run.files if whole else run.recorded
    try:
        if whole:
            _remove_tree(run.dir.path, last=(run.dir.manifest, run.dir.sealed_manifest))
        else:
            for path, _ in gone:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise RunDirError(f"{run.dir.path}: cannot be removed ({error}); check its rights") from error
    return sum(size for _, size in gone)


def _is_run(path: Path) -> bool:
    found = RunDir(path)
    return not path.is_symlink() and path.is_dir() and any(p.is_file() for p in (found.manifest, found.launch))


def _remove_tree(folder: Path, last: Sequence[Path]) -> None:
    """Remove a folder, and these files of it last: a run without them would never be removed."""
    for path in [path for path in folder.iterdir() if path not in last]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for path in last:
        path.unlink(missing_ok=True)
    folder.rmdir()


def _walk(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield files and sizes; what another process has removed meanwhile, or what cannot be read, is left out."""
    entries: list[Path] = []
    with contextlib.suppress(OSError):
        entries = sorted(folder.iterdir())
    for path in entries:
        with contextlib.suppress(OSError):
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode):
                yield from _walk(path)
            else:
                yield path, about.st_size
