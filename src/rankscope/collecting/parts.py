"""A node's part of a run: its run directory, for a job whose nodes share no folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import RunDirError
from rankscope.records.manifest import FileSum
from rankscope.rundir.claim import read_claim
from rankscope.rundir.files import sha256_of
from rankscope.rundir.layout import RunDir

__all__ = ["Part", "is_part_file", "launch_of", "part_of", "same_claim"]

_FILE = re.compile(r"(attempt_\d+/(?:[\w+=@-][\w.+=@-]*/)*|nodes/|stuck/|requests/|announcements/)[\w+=@-][\w.+=@-]*")
_OF_JOB = re.compile(r"(agent\.json|kept\.json|run\.json)(\.age)?")
_CACHE = re.compile(r"attempt_\d+/window_\d+/rank_\d+\.parquet")
_REMEDY = "name another run directory"


@dataclass(frozen=True, slots=True)
class Part:
    """The files of a job in one run directory."""

    nodes: list[str]
    """Names of the nodes whose results it contains."""
    launch: str
    """Identity of the launch, equal for all nodes of the job and different for any other job."""
    files: dict[str, FileSum]
    """Path within the run directory -> size and SHA-256, run.json last."""


def part_of(path: Path) -> Part:
    """List a run directory, and read each of its files once for its SHA-256.

    Raises:
        RunDirError: the path is no run directory, or its job has not ended.
    """
    run_dir = RunDir(path)
    if not run_dir.ended:
        raise RunDirError(
            f"{path} has no run.json: its job runs, its node helper still waits for the other nodes, or it is no run; "
            "name a run directory whose job has ended"
        )
    nodes = sorted(p.name.partition(".result.json")[0] for p in run_dir.nodes.glob("*.result.json*"))
    if not nodes:
        raise RunDirError(f"{path} has no result of a node in nodes/; name the run directory that a job has written")
    try:
        names = sorted(_names(path), key=lambda name: (name.startswith("run.json"), name))
        files = {name: FileSum(sha256=sha256_of(path / name), bytes=(path / name).stat().st_size) for name in names}
    except OSError as error:
        raise RunDirError(f"{path} cannot be read: {error}") from error
    return Part(nodes=nodes, launch=launch_of(run_dir), files=files)


def is_part_file(name: str) -> bool:
    """Return whether a path within a run directory, possibly a foreign one, is a file that belongs to the run."""
    return bool(_FILE.fullmatch(name) or _OF_JOB.fullmatch(name)) and not _CACHE.fullmatch(name)


def launch_of(run_dir: RunDir) -> str:
    """Return the identity of the launch that a run directory belongs to.

    Raises:
        RunDirError: the directory does not contain it.
    """
    launch = read_claim(run_dir.launch, _REMEDY).get("launch")
    if not isinstance(launch, str) or not launch:
        raise RunDirError(f"{run_dir.launch} does not say which launch the run is of; name another run directory")
    return launch


def same_claim(one: Path, other: Path) -> bool:
    """Return whether two claims are of the same node: the same launcher, host and spool."""
    first, second = read_claim(one, _REMEDY), read_claim(other, _REMEDY)
    return all(first.get(key) == second.get(key) for key in ("launch", "host", "pid", "spool"))


def _names(path: Path) -> Iterator[str]:
    for file in path.rglob("*"):
        name = file.relative_to(path).as_posix()
        if is_part_file(name) and file.is_file() and not file.is_symlink():
            yield name
