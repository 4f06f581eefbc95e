"""Atomic writes: a file is complete or absent. Recorded files are never replaced; files derived from them may be."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rankscope.errors import RunDirError

__all__ = [
    "copy_new",
    "place",
    "remove_unfinished",
    "replace_text",
    "rewrite",
    "sha256_of",
    "sha256_of_stream",
    "stored",
    "temporary_beside",
    "temporary_folder",
    "write_new",
]

_BLOCK = 1 << 20


def place(source: Path, target: Path) -> None:
    """Rename a finished temporary file to its final name, atomically. Never replaces a file.

    Raises:
        RunDirError: ``target`` exists.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        raise RunDirError(f"{target} exists already and is not overwritten; use a new run directory") from None
    except OSError:
        # A file system without hard links (some FUSE and object-store mounts): claim the name, then rename over it.
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            raise RunDirError(f"{target} exists already and is not overwritten; use a new run directory") from None
        source.replace(target)
    else:
        source.unlink()


def replace_text(target: Path, text: str | bytes) -> None:
    """Write a file of a spool, which has one writer; readers see the new or the old content, never a part."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        temporary.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_new(target: Path, text: str | bytes) -> None:
    """Write a file that must not exist yet; readers see the whole file or none.

    Raises:
        RunDirError: ``target`` exists.
    """
    with temporary_beside(target) as temporary:
        temporary.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        place(temporary, target)


def rewrite(target: Path, text: str) -> Path:
    """Write UTF-8 text to a file that may exist; readers see the old or the new text, never a part.

    Lone surrogates, which UTF-8 cannot encode, become question marks. Returns the path.

    Raises:
        OSError: the folder cannot be written. No temporary file is left, and an older file is unchanged.
    """
    with temporary_beside(target) as temporary:
        with temporary.open("wb") as stream:
            stream.write(text.encode("utf-8", "replace"))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)  # os.replace: atomic on one file system
    return target


@contextlib.contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``target`` (same file system). The file is removed at the end if it still
    exists. Its name has a random part: containers can have the same host name and the same process ids."""
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.{socket.gethostname()}.{os.getpid()}.tmp")
    _unfinished.append(temporary)
    try:
        yield temporary
    finally:
        _unfinished.remove(temporary)
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder among the temporary files of this machine, which is removed at the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _unfinished.append(folder)
        try:
            yield folder
        finally:
            _unfinished.remove(folder)


_unfinished: list[Path] = []


def remove_unfinished() -> None:
    """Remove all temporary files and folders of this process, which is about to end without leaving its contexts."""
    for temporary in _unfinished:
        with contextlib.suppress(OSError):
            if temporary.is_dir():
                shutil.rmtree(temporary)
            else:
                temporary.unlink(missing_ok=True)


def copy_new(source: Path, target: Path) -> str:
    """Copy a file to a name that must not exist yet, and verify the copy.

    A target with the same content is accepted: a helper may have been killed between copy and removal.

    Returns:
        SHA-256 of the file, hexadecimal.

    Raises:
        RunDirError: ``target`` exists with other content.
        OSError: the copy could not be written, or reads back differently.
    """
    digest = hashlib.sha256()
    with temporary_beside(target) as temporary:
        with source.open("rb") as stream, temporary.open("wb") as copy:
            while block := stream.read(_BLOCK):
                digest.update(block)
                copy.write(block)
        stored(temporary, digest.hexdigest())
        try:
            place(temporary, target)
        except RunDirError:
            if sha256_of(target) != digest.hexdigest():
                raise
    return digest.hexdigest()


def stored(path: Path, sha256: str) -> None:
    """Verify that a file is on its disk or network file system: flush it, and read it back.

    Raises:
        OSError: it could not be flushed (for instance because of a quota), or reads back differently.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        if hasattr(os, "posix_fadvise"):  # drops the page cache, so that the file is read from the disk
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    if sha256_of(path) != sha256:
        raise OSError(errno.EIO, "what was written reads otherwise", str(path))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file, hexadecimal.

    Raises:
        OSError: it cannot be read, or is not a regular file: a FIFO would block, and a device may have no end.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return sha256_of_stream(stream)


def sha256_of_stream(stream: IO[bytes]) -> str:
    """Return the SHA-256 of the rest of a stream, hexadecimal."""
    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()
