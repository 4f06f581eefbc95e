"""Opening a file of another program: only a regular one, and never more of it than its content can need.

Traces and run directories come from other people and other machines. In the place of a file there may be a FIFO, whose
opening waits for ever, a link to a device that never ends, or a gzip that unfolds a thousandfold. Whatever reads a file
that this process did not write itself opens it here.
"""

from __future__ import annotations

import io
import os
import stat
import threading
from pathlib import Path

from rankscope.errors import ForeignFileError

__all__ = ["open_foreign", "read_foreign", "read_foreign_gzip", "shown"]

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_foreign(path: Path, limit: int) -> io.BufferedReader:
    """Open a regular file of at most ``limit`` bytes for reading; never waits for a writer.

    Links are followed, as far as the system does. The stream has a file descriptor and can seek. Should the file grow
    while it is read, reading beyond the limit raises, too.

    Raises:
        ForeignFileError: it is missing, not to be read, not a regular file, or longer than ``limit``.
    """
    try:
        _refuse_other_kinds(path, path.stat().st_mode)  # first, since opening a device can do things
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            found = os.fstat(handle)  # and again: what lies there now need not be what lay there then
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
    """All of a regular file of at most ``limit`` bytes.

    Args:
        path: the file.
        limit: bytes.
        within_s: give up after so many seconds, for a store that may hang; the waiting is left to a thread that nothing
            waits for.

    Raises:
        ForeignFileError: as :func:`open_foreign` raises it, or the time was up.
    """
    return _read(path, limit) if within_s is None else _in_time(path, limit, within_s)


def read_foreign_gzip(path: Path, limit: int) -> bytes:
    """All that a gzip file holds, if that is at most ``limit`` bytes. Unpacked piece by piece up to there.

    Raises:
        ForeignFileError: as :func:`open_foreign` raises it, or it is damaged, or holds more.
    """
    import gzip  # here, so that who only opens a file needs none of it: rankscope's agent is a guest in its process
    import zlib

    packed_limit = limit + limit // 1000 + 4096  # what does not shrink grows by its headers, less than a thousandth
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
    """A path for messages and reports: what is not UTF-8 in it, or would move a terminal's cursor, is escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class _Bounded(io.FileIO):
    """A file of which nothing beyond the limit is read."""

    def __init__(self, handle: int, path: Path, limit: int) -> None:
        super().__init__(handle, "rb")
        self._path = path
        self._limit = limit

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill the buffer."""
        count = super().readinto(buffer)
        if count is None:  # O_NONBLOCK means nothing to a regular file, but to some of /proc
            raise ForeignFileError(f"{shown(self._path)}: gives nothing without waiting; give a plain file")
        if count and (place := self.tell()) > self._limit:
            raise _too_long(self._path, place, self._limit)
        return count

    def readall(self) -> bytes:
        """The rest, within the limit."""
        parts = []
        while part := self.read(1 << 20):
            parts.append(part)
        return b"".join(parts)

    def read(self, size: int | None = -1, /) -> bytes:
        """At most ``size`` bytes."""
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
        except BaseException as error:  # goes on in the thread that asked
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
