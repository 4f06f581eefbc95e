"""Open files of other programs: regular files only, and at most as many bytes as such a file can need.

Traces and run directories come from other people and other machines. Instead of a file there may be a FIFO, whose
opening blocks forever, a link to a device without an end, or a gzip that expands a thousandfold. All code that reads a
file which this process did not write opens it with this module.
"""

from __future__ import annotations

import io
import os
import stat
import threading
from pathlib import Path

from rankscope.errors import ForeignFileError

__all__ = ["open_foreign", "printable", "read_foreign", "read_foreign_gzip", "shown"]

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_foreign(path: Path, limit: int) -> io.BufferedReader:
    """Open a regular file of at most ``limit`` bytes for reading; never waits for a writer.

    Symbolic links are followed. The stream has a file descriptor and can seek. If the file grows while it is read,
    reading beyond the limit raises as well.

    Raises:
        ForeignFileError: it is missing, cannot be read, is not a regular file, or is longer than ``limit``.
    """
    try:
        _refuse_other_kinds(path, path.stat().st_mode)  # before opening, because opening a device can have effects
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            found = os.fstat(handle)  # checked again, because the file may have been replaced
            _refuse_other_kinds(path, found.st_mode)
            if found.st_size > limit:
                raise _too_long(path, found.st_size, limit)
            return io.BufferedReader(_Bounded(handle, path, limit))
        except BaseException:
            os.close(handle)
            raise
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise _unreadable(path, error) from error


def read_foreign(path: Path, limit: int, *, within_s: float | None = None) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes.

    Args:
        path: the file.
        limit: largest size in bytes.
        within_s: time limit in seconds, for a file system that may hang; then a daemon thread reads, and is abandoned
            after the limit.

    Raises:
        ForeignFileError: as of :func:`open_foreign`, or the time limit was exceeded.
    """
    return _read(path, limit) if within_s is None else _in_time(path, limit, within_s)


def read_foreign_gzip(path: Path, limit: int) -> bytes:
    """Return the unpacked content of a gzip file, at most ``limit`` bytes; no more than that is unpacked.

    Raises:
        ForeignFileError: as of :func:`open_foreign`, or the file is damaged, or unpacks to more.
    """
    import gzip  # imported here, because the agent in a training process only opens files and must import quickly
    import zlib

    packed_limit = limit + limit // 1000 + 4096  # data that cannot be compressed grows by headers, by less than 0.1 %
    try:
        with open_foreign(path, packed_limit) as packed, gzip.GzipFile(fileobj=packed, mode="rb") as stream:
            plain = stream.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ForeignFileError(f"{shown(path)}: damaged gzip ({error}); copy it again, or remove it") from error
    if len(plain) > limit:
        raise ForeignFileError(
            f"{shown(path)}: unpacks to more than {limit} bytes, the most that such a file can hold; remove it"
        )
    return plain


def shown(path: Path | str) -> str:
    """Return a path as text for messages and reports, with bytes that are not UTF-8 and control characters escaped."""
    return printable(os.fsencode(path).decode("utf-8", "backslashreplace"))


def printable(text: str) -> str:
    """Return a text with control characters escaped, so that it is one line and changes no terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class _Bounded(io.FileIO):
    """A file that raises when it is read beyond the limit."""

    def __init__(self, handle: int, path: Path, limit: int) -> None:
        super().__init__(handle, "rb")
        self._path = path
        self._limit = limit

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read into the buffer and return the number of bytes; raises ForeignFileError beyond the limit."""
        count = super().readinto(buffer)
        if count is None:  # O_NONBLOCK has no effect on regular files, except some in /proc
            raise ForeignFileError(f"{shown(self._path)}: gives nothing without waiting; give a plain file")
        if count and (place := self.tell()) > self._limit:
            raise _too_long(self._path, place, self._limit)
        return count

    def readall(self) -> bytes:
        """Return the rest of the file."""
        parts = []
        while part := self.read(1 << 20):
            parts.append(part)
        return b"".join(parts)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most ``size`` bytes; all that are left for None or a negative size."""
        if size is None or size < 0:
            return self.readall()
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: self.readinto(buffer)])


def _read(path: Path, limit: int) -> bytes:
    with open_foreign(path, limit) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise _unreadable(path, error) from error


def _in_time(path: Path, limit: int, within_s: float) -> bytes:
    came: list[bytes | BaseException] = []

    def work() -> None:
        try:
            came.append(_read(path, limit))
        except BaseException as error:  # raised again in the calling thread
            came.append(error)

    reader = threading.Thread(target=work, name="read_foreign", daemon=True)
    reader.start()
    reader.join(within_s)
    if not came:
        raise ForeignFileError(f"{shown(path)}: not read within {within_s:g} s; does its file system answer?")
    if isinstance(came[0], BaseException):
        raise came[0]
    return came[0]


def _refuse_other_kinds(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise ForeignFileError(f"{shown(path)}: {kind}, not a regular file; remove it, or give the file itself")


def _too_long(path: Path, size: int, limit: int) -> ForeignFileError:
    return ForeignFileError(
        f"{shown(path)}: {size} bytes, and such a file holds at most {limit}; remove it, or give the right file"
    )


def _unreadable(path: Path, error: Exception) -> ForeignFileError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    return ForeignFileError(f"{shown(path)}: cannot be read ({why}); check path and rights")
