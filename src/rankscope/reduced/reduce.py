"""Reduce traces to columns, one share at a time: each share is one object, made by any process that can read the
files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import ForeignFileError
from rankscope.records.report import SourceFile
from rankscope.reduced.store import added, is_url, place_of, places_in, written
from rankscope.rundir.files import temporary_beside, temporary_folder
from rankscope.trace.files.find import Candidate, Found, find_traces
from rankscope.trace.files.load import Decoded, read_one
from rankscope.trace.files.objects import SUFFIX, ObjectWriter, ReducedFile, read_object

__all__ = [
    "FILES_AN_OBJECT",
    "Share",
    "add_share",
    "objects_beside",
    "reduce_share",
    "reduce_shares",
    "shares_of",
    "without_whole",
]

FILES_AN_OBJECT = 16
"""An object takes 5 ms to store, its list is read as a whole, and a share is lost if its worker fails."""


@dataclass(frozen=True, slots=True)
class Share:
    """Every ``of``-th trace under some paths, from ``number`` on. Every process finds the same files, in the same
    order."""

    paths: tuple[Path, ...]
    output: str
    """Folder or URL of the object."""
    number: int = 0
    of: int = 1
    name: str = "share"

    @property
    def target(self) -> str:
        """Path or URL of the object."""
        return f"{self.output.rstrip('/')}/{self.name}_{self.number:05d}_of_{self.of:05d}{SUFFIX}"


def shares_of(paths: Sequence[Path], output: str, *, objects: int | None = None) -> list[Share]:
    """Divide the traces under some paths into shares.

    Args:
        paths: folders, run directories, files.
        output: folder or URL of the objects.
        objects: number of objects; None: one for each :data:`FILES_AN_OBJECT` traces.
    """
    found = find_traces(paths)
    count = len(found.candidates) + len(found.objects)
    whole = max(1, min(objects or -(-count // FILES_AN_OBJECT), count))
    return [Share(tuple(paths), output, number, whole) for number in range(whole)]


def without_whole(shares: Sequence[Share]) -> list[Share]:
    """Return the shares whose object does not exist yet, is incomplete, is of other traces, or lacks one that could not
    be read then."""
    found = {share.paths: find_traces(share.paths) for share in shares}
    return [share for share in shares if not _is_whole(share, found[share.paths])]


def _is_whole(share: Share, found: Found) -> bool:
    if found.objects[share.number :: share.of]:
        return False  # what they hold is copied sooner than compared
    contents = place_of(share.target).contents()
    paths = [str(candidate.path) for candidate in found.candidates[share.number :: share.of]]
    return contents is not None and [f.path for f in contents.files if f.reason is None] == paths


def objects_beside(shares: Sequence[Share]) -> list[str]:
    """Return the paths or URLs of objects that are stored beside those of some shares, and are none of them.

    Raises:
        RunDirError: the store cannot be read.
    """
    own = {share.target for share in shares}
    return [
        place.name
        for output in {share.output for share in shares}
        for place in places_in(output)
        if place.name not in own
    ]


def reduce_share(share: Share) -> int:
    """Make the object of a share, with one trace in memory at a time.

    A file that cannot be read is in the object with the reason.

    Returns:
        The number of its files.

    Raises:
        OSError: the object cannot be written.
    """
    with written(share.target) as target:
        return _made(share, target)


def add_share(share: Share) -> tuple[str, int]:
    """Make the object of a share without replacing one of other traces, which another node with the same host name can
    have stored.

    Returns:
        Path or URL of the object, and the number of its files.

    Raises:
        OSError: the object cannot be written.
    """
    with ExitStack() as stack:
        if is_url(share.target):
            local = stack.enter_context(temporary_folder()) / "object"
        else:
            Path(share.output).mkdir(parents=True, exist_ok=True)
            local = stack.enter_context(temporary_beside(Path(share.target)))
        count = _made(share, local)
        return added(local, share.target), count


def _made(share: Share, target: Path) -> int:
    found = find_traces(share.paths)
    candidates = found.candidates[share.number :: share.of]
    with ObjectWriter.open(target) as writer:
        files = writer.contents.files
        for candidate in candidates:
            files.append(_reduced(candidate, read_one(candidate), writer))
        if share.number == 0:  # files beside the traces are listed once
            _beside(writer, found)
        _add_kept(found, share, writer)
    return len(files)


def _add_kept(found: Found, share: Share, writer: ObjectWriter) -> None:
    """Add the traces of which a run directory keeps only the columns."""
    whole = {candidate.path for candidate in found.candidates}
    for path in found.objects[share.number :: share.of]:
        try:
            kept = read_object(path)
        except (ForeignFileError, OSError) as error:
            writer.contents.aside.append(SourceFile(path=str(path), status="unusable", reason=str(error)))
            continue
        writer.contents.files += [_reduced(c, decoded, writer) for c, decoded in kept if c.path not in whole]


def reduce_shares(
    shares: Sequence[Share],
    executor: Executor | None = None,
    done: Callable[[int, int], None] = lambda *_: None,
    here: Callable[[int, str], None] = lambda *_: None,
) -> Iterator[tuple[Share, str]]:
    """Make the objects of all shares. A share that fails in the executor is tried once more in this process.

    Args:
        shares: of :func:`shares_of`.
        executor: runs the work; None: this process, one after the other.
        done: called with shares done and shares in total.
        here: called with the number of shares that the executor's workers did not make, and the first reason.

    Yields:
        The shares that have no object, and why.
    """
    left = list(shares)
    if executor is not None:
        futures = {executor.submit(reduce_share, share): share for share in shares}
        left, why = [], ""
        for number, future in enumerate(as_completed(futures), 1):
            if future.cancelled() or future.exception() is not None:
                left.append(futures[future])
                why = why or _why(future)
            done(number - len(left), len(shares))
        if left:
            here(len(left), why)
    for place, share in enumerate(left):
        try:
            reduce_share(share)
        except Exception as error:
            yield share, f"{type(error).__name__}: {error}"
        done(len(shares) - len(left) + place + 1, len(shares))


def _why(future: Future[int]) -> str:
    if future.cancelled():
        return "it was cancelled"
    error = future.exception()
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _reduced(candidate: Candidate, decoded: Decoded, writer: ObjectWriter) -> ReducedFile:
    file = ReducedFile(
        path=str(candidate.path),
        name=candidate.name,
        name_rank=candidate.name_rank,
        format=candidate.format,
        attempt=candidate.attempt,
        window=candidate.window,
    )
    if isinstance(decoded, str):
        file.reason = decoded
    else:
        file.members = [writer.add(trace) for trace in decoded]
    return file


def _beside(writer: ObjectWriter, found: Found) -> None:
    writer.contents.aside += found.aside
    writer.contents.snapshots = [str(path) for path in found.snapshots]
    writer.contents.pulses = [str(path) for path in found.step_logs]
