"""Atomic writes. A file is complete or absent, and nothing in a run directory is replaced."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from rankscope.errors import RunDirError

__all__ = ["place", "replace_text", "sha256_of", "temporary_beside", "write_new"]


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
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
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


def write_new(target: Path, text: str) -> None:
    """Write a file that must not exist yet; readers see all of it or nothing."""
    with temporary_beside(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
        place(temporary, target)


@contextlib.contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """A temporary name in the folder of ``target`` (same file system), removed when it is still there at the end."""
    temporary = target.with_name(f".{target.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Hex digest of a file, read in blocks of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
