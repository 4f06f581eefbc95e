"""RankTrace <-> Parquet. The columns are a public format: see docs/parquet.md.

In a run directory of rankscope they are written beside each trace. No files are written beside other traces: their
columns go to the user's cache folder, as do those of a run directory that cannot be written, or to a named folder.

The cache is optional: if its file was not written by rankscope or does not fit the trace any more, the trace is decoded
again, without a message.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankscope.rundir.foreign import open_foreign
from rankscope.rundir.layout import RunDir
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.parquet import KEY, PARQUET_VERSION, read_columns, write_columns

__all__ = ["cache_path", "drop_cached", "load_cached", "store_cached"]

_MOST_BYTES = 1 << 36
_MOST_CACHED = 20 * 10**9
"""Largest size of the user's cache folder, in bytes: the columns of about 2,000 traces of 100 MB."""
_SUFFIXES = (".gz", ".json", ".trace", ".pt")


def cache_path(trace: Path, folder: Path | None = None) -> Path | None:
    """Return where the columns of a trace file are kept; None if there is no place for them.

    Args:
        trace: the trace file, for instance ``rank_3.trace.json.gz``.
        folder: the folder that the user wants. None: ``rank_3.parquet`` beside a trace of a run directory that can be
            written, else the user's cache folder.
    """
    name = trace.name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    if folder is None and _of_a_run(trace) and os.access(trace.parent, os.W_OK):
        return trace.with_name(f"{name}.parquet")
    folder = folder or _users_folder()
    try:
        whole = os.fsencode(trace.resolve())
    except (OSError, RuntimeError):
        return None
    return folder and folder / f"{name[:80]}-{hashlib.sha256(whole).hexdigest()[:32]}.parquet"


def _of_a_run(trace: Path) -> bool:
    """Return whether a trace is in a run directory: RUN/attempt_N/window_N/rank_N."""
    return any(RunDir(parent).manifest.is_file() for parent in list(trace.absolute().parents)[:3])


def _users_folder() -> Path | None:
    given = Path(os.environ.get("XDG_CACHE_HOME") or "")
    try:
        return (given if given.is_absolute() else Path.home() / ".cache") / "rankscope"
    except RuntimeError:  # no home directory
        return None


def store_cached(path: Path, trace: RankTrace, folder: Path | None = None) -> bool:
    """Write the columns of a trace file to :func:`cache_path`, atomically. Return False if that is not possible."""
    target = cache_path(path, folder)
    if target is None:
        return False
    temporary: str | None = None
    try:
        if target.parent != path.parent:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.path.lexists(target) and KEY not in _metadata(target):
            return False  # a file of another program
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
        write_columns(trace, temporary, _key(path))
        Path(temporary).chmod(path.stat().st_mode & 0o666)  # readable by the same users as the trace
        Path(temporary).replace(target)
        if target.parent == _users_folder():
            _keep_within(target.parent, _MOST_CACHED, spare=target)
    except (OSError, ValueError, TypeError, OverflowError, ArithmeticError, ImportError):
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True)
        return False
    return True


def _keep_within(folder: Path, most_bytes: int, spare: Path) -> None:
    """Remove the least recently used files of a cache folder until its size is at most ``most_bytes``."""
    ages = []
    for file in folder.glob("*.parquet"):
        with contextlib.suppress(OSError):
            about = file.stat()
            ages.append((about.st_mtime_ns, about.st_size, file))
    excess = sum(size for _, size, _ in ages) - most_bytes
    for _, size, file in sorted(ages):
        if excess <= 0:
            return
        if file != spare:
            with contextlib.suppress(OSError):
                file.unlink()
                excess -= size


def load_cached(path: Path, folder: Path | None = None) -> RankTrace | None:
    """Return the columns of the trace file ``path`` from :func:`cache_path`; None if there are none that fit."""
    try:
        source = cache_path(path, folder)
        if source is None or not source.is_file():
            return None
        size = source.stat().st_size
        with _opened(source, size) as stream:
            trace = read_columns(stream, size, path, _key(path))
        if trace is not None and source.parent == _users_folder():
            os.utime(source)  # mark it as used
    except Exception:  # pyarrow raises many kinds of errors on corrupt files
        return None
    return trace


def drop_cached(path: Path, folder: Path | None = None) -> None:
    """Remove the columns of the trace file ``path``, if rankscope wrote them and they fit it."""
    with contextlib.suppress(Exception):
        target = cache_path(path, folder)
        if target is not None and target.is_file() and _metadata(target).get(KEY) == _key(path):
            target.unlink()


@contextlib.contextmanager
def _opened(path: Path, most_bytes: int) -> Iterator[Any]:
    """Open any file as a file of Arrow's own.

    Arrow reads in threads of its own. A thread that releases a Python file during interpreter shutdown aborts the
    process, since it cannot acquire the GIL any more.
    """
    import pyarrow as pa

    with open_foreign(path, most_bytes) as checked, pa.OSFile(f"/dev/fd/{checked.fileno()}") as stream:
        yield stream


def _metadata(target: Path) -> dict[bytes, bytes]:
    """Return the metadata in the footer of a Parquet file of rankscope; empty for other files, or if there is none."""
    import pyarrow.parquet as pq

    with contextlib.suppress(Exception), _opened(target, _MOST_BYTES) as stream:  # pyarrow raises many kinds of errors
        return pq.read_metadata(stream).metadata or {}
    return {}


def _key(path: Path) -> bytes:
    stat = path.stat()
    return f"{PARQUET_VERSION} {path.name} {stat.st_size} {stat.st_mtime_ns}".encode("utf-8", "replace")
