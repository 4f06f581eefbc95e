"""Find the files that may be traces, and the files beside them, below the user's paths, in one walk.

Traces are recognised by content; other files are listed with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import ConfigError, TraceError
from rankscope.records.report import SourceFile
from rankscope.rundir.layout import ARRIVING
from rankscope.trace.files.encodings import how_archived, how_encoded
from rankscope.trace.files.formats import is_offered, recognise
from rankscope.trace.files.naming import rank_of_name
from rankscope.trace.format import Format
from rankscope.trace.read import Reader

__all__ = ["Candidate", "Found", "find_traces"]

_RUN_FILE = re.compile(r"attempt_(\d+)/window_(\d+)/rank_(\d+)\.trace\.json(?:\.gz)?$")
_RUN_RECORDS = re.compile(
    r"(?:^|/)(?:run|agent|report)\.json$"
    r"|(?:^|/)nodes/(?:launch|[^/]+\.claim|[^/]+\.result)\.json$"
    r"|attempt_\d+/(?:window_\d+/)?rank_\d+\.json$"
)
_SNAPSHOT = re.compile(r"(?:^|/)rank_[^/]*\.memory[^/]*\.pickle$")
"""Memory snapshot of a window or, with another middle part, of an out-of-memory error."""
_STEP_LOG = re.compile(r"(?:^|/)attempt_\d+/pulse/rank_\d+\.bin\.gz$")
_OBJECT = re.compile(r"attempt_\d+/window_\d+/columns/[^/]+\.columns$")
_PACKED_NAME = re.compile(r"\.(?:zst|zstd|xz|bz2|lz4|7z|zip|tar|tgz|tar\.gz)$", re.IGNORECASE)
"""Names of files that are opened only to say that they have to be unpacked."""
_MERGED = "cluster.trace.json.gz"
_SNIFF_BYTES = 1 << 20
MOST_FOREIGN = 20_000
"""Files below a given folder that are opened and are no traces; looking at them takes up to half a minute."""
MOST_FOREIGN_BYTES = 4 << 30
"""What is read of them, unpacked."""
MOST_FILES = 5_000_000
"""Files below a given folder: ten windows of a job of 100,000 ranks have fewer."""
_NAME_LESS = "name the folder of the traces, or the files"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that looks like a trace."""

    path: Path
    name: str
    """The path below the given folder, with ``/`` between folders."""
    name_rank: int | None
    """The rank in the name; the content takes precedence."""
    format: str
    """Name of the :class:`~rankscope.trace.format.Format` that reads it."""
    attempt: int | None = None
    window: int | None = None
    """From the path of a run directory; None for other files, whose windows are separated by time."""

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Sort key: attempt, window, rank and path."""
        return self.attempt or 0, self.window or 0, self.name_rank or 0, str(self.path)


@dataclass(slots=True)
class Found:
    """Files found below the paths."""

    candidates: list[Candidate]
    """In the order of attempt, window and path."""
    aside: list[SourceFile]
    snapshots: list[Path]
    """Memory snapshots of ranks; searched in folders only, as are step logs."""
    step_logs: list[Path]
    """Step logs of ranks over the whole run."""
    objects: list[Path]
    """Columns of traces that were not kept, in run directories."""


def find_traces(paths: Sequence[Path]) -> Found:
    """Search files and folders (recursively; links to folders are not followed).

    Raises:
        ConfigError: a folder holds so many other files that it is hardly the one that was meant.
    """
    candidates: dict[Path, Candidate] = {}
    aside: dict[Path, SourceFile] = {}
    snapshots: set[Path] = set()
    step_logs: set[Path] = set()
    objects: set[Path] = set()
    single = [path for path in map(Path, paths) if not path.is_dir()]
    # files that were given one by one are distinguished by their folders
    above = Path(os.path.commonpath([p.absolute().parent for p in single])) if len(single) > 1 else None
    for given in paths:
        path = Path(given)
        if path.is_dir():
            foreign = _Foreign(path)
            for file in _walk(path):
                foreign.met()
                whole = file.as_posix()
                if _SNAPSHOT.search(whole):
                    snapshots.add(file)
                elif _STEP_LOG.search(whole):
                    step_logs.add(file)
                elif _OBJECT.search(whole):
                    objects.add(file)
                elif file.name.endswith(".age"):
                    aside[file] = SourceFile(
                        path=str(file), status="unusable", reason="encrypted; give --identity FILE"
                    )
                elif _is_tried(file, whole):
                    size = _judge(file, file.relative_to(path).as_posix(), candidates, aside)
                    foreign.opened(file, size)
        elif not path.exists() and not path.is_symlink():
            aside[path] = SourceFile(path=str(path), status="unusable", reason="no such file or folder")
        else:
            name = path.name if above is None else path.absolute().relative_to(above).as_posix()
            _judge(path, name, candidates, aside)
    order = sorted(candidates.values(), key=lambda candidate: candidate.order)
    return Found(order, list(aside.values()), sorted(snapshots), sorted(step_logs), sorted(objects))


@dataclass(slots=True)
class _Foreign:
    """Counts what is no trace below a folder, so that a search of a home directory or of a data set ends soon."""

    folder: Path
    files: int = 0
    no_traces: int = 0
    bytes: int = 0

    def met(self) -> None:
        """Count a file.

        Raises:
            ConfigError: there are too many.
        """
        self.files += 1
        if self.files > MOST_FILES:
            raise ConfigError(f"{self.folder} holds more than {MOST_FILES:,} files; {_NAME_LESS}")

    def opened(self, file: Path, size: int) -> None:
        """Count a file of which ``size`` bytes were read to find that it is no trace; 0 for one.

        Raises:
            ConfigError: there are too many.
        """
        self.no_traces += size > 0
        self.bytes += size
        if self.no_traces > MOST_FOREIGN or self.bytes > MOST_FOREIGN_BYTES:
            raise ConfigError(
                f"{self.folder}: {self.no_traces:,} files were opened that are no traces, the last one "
                f"{file.relative_to(self.folder)}, and the search has ended there; {_NAME_LESS}"
            )


def _is_tried(file: Path, whole: str) -> bool:
    """Return whether a file in a folder is opened: it may be a trace, or pack some."""
    offered = is_offered(file.name) and not _RUN_RECORDS.search(whole) and file.name != _MERGED
    return offered or _PACKED_NAME.search(file.name) is not None


def _walk(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(ARRIVING))
        # a folder with the name of a trace is offered too, so that the report can state why that rank is missing
        yield from (Path(where, name) for name in sorted([*files, *filter(is_offered, folders)]))


def _judge(path: Path, name: str, candidates: dict[Path, Candidate], aside: dict[Path, SourceFile]) -> int:
    """Decide what a file is. Return how many bytes, at least 1, were read if it is JSON, but no trace; else 0."""
    size = 0
    try:
        key = path.resolve(strict=True)
        form, size = _format_or_reason(path)
    except FileNotFoundError:
        key, form = path.absolute(), "the link leads nowhere"
    except (OSError, RuntimeError, TraceError) as error:
        rank = rank_of_name(name)  # so that the report can state why this rank is missing
        aside[path] = SourceFile(path=str(path), status="unusable", rank=rank, reason=str(error))
        return 0
    if key in candidates or key in aside:
        return size
    if isinstance(form, str):
        aside[key] = SourceFile(path=str(path), status="ignored", rank=rank_of_name(name), reason=form)
        return size
    run = _RUN_FILE.search(path.absolute().as_posix())
    if run:
        attempt, window, rank = (int(n) for n in run.groups())
        candidates[key] = Candidate(path, name, rank, form.name, attempt, window)
    else:
        candidates[key] = Candidate(path, name, rank_of_name(name), form.name)
    return 0


def _format_or_reason(path: Path) -> tuple[Format | str, int]:
    """Return the format of this file, or the reason why it is not a trace; and how many bytes of it were read.

    Raises:
        TraceError: it may have been one, but nothing usable is left of it.
    """
    if not path.is_file():
        return "a folder, not a trace" if path.is_dir() else "not a regular file", 0
    if path.name.endswith((".tmp", ".part")):
        return "left over from an export that did not finish", 0
    if path.name == _MERGED:
        return "a merged timeline, not a rank's trace", 0
    head, look_at = bytearray(), 1
    reader = Reader(path)
    for block in reader:
        head += block
        if len(head) < look_at:
            continue
        if (form := _known(path, bytes(head))) is not None:
            return form, len(head)
        if len(head) >= _SNIFF_BYTES:
            break
        look_at = min(2 * len(head), _SNIFF_BYTES)  # looking at each block again would take most of the time
    begin = bytes(head)
    if (form := _known(path, begin)) is not None:
        return form, len(begin)
    if not begin.strip() or reader.damage:
        raise TraceError(f"{path}: {reader.damage or 'empty'}; record it again, or remove the file")
    if begin.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer; fetch the file with git lfs pull", len(begin)
    if b'"nodes"' in begin and b'"schema"' in begin:
        return "an execution trace (Chakra), not a profiler trace", len(begin)
    if begin.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return "JSON, but not a profiler trace", len(begin)
    return "not JSON", len(begin)


def _known(path: Path, head: bytes) -> Format | str | None:
    """Return the format of a file that begins with these bytes, or that it is an archive; None if neither (yet).

    Raises:
        TraceError: it may be a trace, packed or encoded in a way that is not read.
    """
    if encoding := how_encoded(head):
        raise TraceError(f"{path}: {encoding}")
    return how_archived(head) or recognise(head)
