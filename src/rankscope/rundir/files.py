"""Atomic writes: a file is complete or absent. What was recorded is never replaced; what is made of it may be."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rankscope.errors import RunDirError

__all__ = [
    "copy_new",
    "place",
    "replace_text",
    "rewrite",
    "sha256_of",
    "sha256_of_stream",
    "stored",
    "temporary_beside",
    "write_new",
]

_BLOCK = 1 << 20


def place(source: Path, target: Path) -> None:
    """Give a finished temporary file its name, atomically; refuses to replace.

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


def replace_text(target: Path, text: str) -> None:
    """Write a file of a spool, which has one writer; readers see all of it or what was there before."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(target)


def write_new(target: Path, text: str | bytes) -> None:
    """Write a file that must not exist yet; readers see all of it or nothing."""
    with temporary_beside(target) as temporary:
        temporary.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        place(temporary, target)


def rewrite(target: Path, text: str) -> Path:
    """Write UTF-8 text to a file that may exist; readers see the old text or the new one, and never a part of it.

    Lone surrogates, which UTF-8 cannot hold, become question marks.

    Raises:
        OSError: the folder cannot be written. No temporary file is left, and an older file stays as it was.
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
    """A temporary name in the folder of ``target`` (same file system), removed when it is still there at the end."""
    temporary = target.with_name(f".{target.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def copy_new(source: Path, target: Path) -> str:
    """Copy a file to a name that must not exist yet, and make sure that it is there.

    A target that holds the same already, as after a helper that died between copy and removal, is as good.

    Returns:
        Its SHA-256.

    Raises:
        RunDirError: ``target`` exists and is another file.
        OSError: the copy could not be written, or reads otherwise than what was written.
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
    """Make sure that the store has taken a file: flush it, and read it back.

    Raises:
        OSError: the store has not taken it (a quota, say, that shows only now), or gives back something else.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        if hasattr(os, "posix_fadvise"):  # so that the store is asked, and not our own memory
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    if sha256_of(path) != sha256:
        raise OSError(errno.EIO, "what was written reads otherwise", str(path))


def sha256_of(path: Path) -> str:
    """Of all that a regular file holds, hexadecimal.

    Raises:
        OSError: it cannot be read, or is none: a FIFO would be waited for, a device has no end.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return sha256_of_stream(stream)


def sha256_of_stream(stream: IO[bytes]) -> str:
    """Of all that is left to read of a stream, hexadecimal."""
    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()
