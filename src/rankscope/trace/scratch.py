"""Columns of many ranks in scratch files, so that the memory of an analysis does not grow with what its ranks recorded.

The first :data:`KEPT` bytes stay in memory: most jobs have no more. Later columns are copied to files without a name in
the folder for temporary files (``TMPDIR``) and accessed as memory that the system can take away and read again. Most of
the analysis works on one rank after the other. A thread looks many times a second and releases all pages if there are
many, so that those of a few ranks are held. Where there is no room for such files, columns stay in memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, finalize

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["KEPT", "Array", "GrowingTable", "Scratch", "give_back", "release"]

KEPT = 32 << 20
"""Bytes that stay in memory, for each user of scratch files (six at most at a time): the columns of 16 ranks with 150
calls in each of 20 steps. Files cost no more time."""
_FILE = 64 << 20
"""Size of the first scratch file, unless one column is larger; later ones double, as a process may have few open."""
_LARGEST_FILE = 1 << 30
_SPARED = 0.1
"""Share of the disk that is left free."""
_ALIGNED = 64
_SMALL = 1 << 10
"""Bytes from which a column is worth the object that stands for it."""

Array = TypeVar("Array", bound=NDArray[Any])
_EVERY_S = 0.05
"""Pages are mapped at about 2 GB/s, so that between two looks some 100 MB are."""
_HELD = 160 << 20
"""Bytes of files, with those of the libraries that are loaded, from which pages are released. Each release costs the
mapping of what is accessed next."""
_STATM = Path("/proc/self/statm")
_ADDING = threading.Lock()
_MAPPED: WeakSet[mmap.mmap] = WeakSet()


class Scratch:
    """Takes columns over. They live as long as the arrays that it returns."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._file: mmap.mmap | None = None
        self._descriptor = -1
        self._end, self._size, self._full = 0, _FILE, False

    def take(self, *tables: DataclassInstance) -> None:
        """Move the columns of dataclasses, in place, also those in tuples, lists and dicts."""
        for table in tables:
            for column in fields(table):
                values = getattr(table, column.name)
                if (moved := self._taken(values)) is not values:
                    object.__setattr__(table, column.name, moved)

    def _taken(self, values: Any) -> Any:
        if isinstance(values, np.ndarray):
            own = values.flags.c_contiguous and values.nbytes >= _SMALL  # else a part of another, or a single value
            return self.keep(values) if own else values
        if isinstance(values, dict) and values and isinstance(next(iter(values.values())), np.ndarray | tuple):
            return {key: self._taken(value) for key, value in values.items()}
        if isinstance(values, list | tuple) and values and isinstance(values[0], np.ndarray):
            return type(values)(self._taken(value) for value in values)
        return values

    def keep(self, column: Array) -> Array:
        """Return a column with the same values; the argument itself as long as memory is used."""
        moved = self._moved(column.size, column.dtype, (column,))
        return column if moved is None else moved.reshape(column.shape)  # type: ignore[return-value]

    def joined(self, count: int, kind: Any, pieces: Iterable[NDArray[Any]]) -> NDArray[Any]:
        """Return the concatenation of ``pieces``, which have ``count`` values of one kind in all."""
        moved = self._moved(count, np.dtype(kind), pieces)
        if moved is not None:
            return moved
        whole, end = np.empty(count, kind), 0
        for piece in pieces:
            whole[end : end + len(piece)] = piece
            end += len(piece)
        return whole

    def _moved(self, count: int, kind: np.dtype[Any], pieces: Iterable[NDArray[Any]]) -> NDArray[Any] | None:
        """Return the column that consists of ``pieces`` in a file; None if it is to be in memory."""
        size = count * kind.itemsize
        if size <= self._kept:
            self._kept -= size
            return None
        self._kept = 0  # columns of one rank are read together
        if self._file is None or self._end + size > len(self._file):
            if self._full:
                return None
            self._file, self._descriptor = _new_file(max(size, self._size)) or (None, -1)
            self._end, self._size = 0, min(2 * self._size, _LARGEST_FILE)
        if self._file is None:
            self._full = True
            return None
        end = self._end
        for piece in pieces:
            end = _write(self._descriptor, np.ascontiguousarray(piece, kind), end)
        found = np.frombuffer(self._file, kind, count, self._end)
        self._end += -(-size // _ALIGNED) * _ALIGNED
        return found


class GrowingTable:
    """Columns of equal length that grow by pieces, and are then read one after the other; large ones are in files."""

    def __init__(self, kinds: Sequence[type], kept: int = KEPT) -> None:
        """``kept`` is the number of bytes of all columns that stay in memory."""
        self._kinds = [np.dtype(kind) for kind in kinds]
        self._kept = kept
        self._pieces: list[list[NDArray[Any]]] = [[] for _ in kinds]
        self._files: list[_GrowingFile] = []

    def append(self, *pieces: NDArray[Any]) -> None:
        """Append to each column a piece of the same length."""
        for column, kind, piece in zip(self._pieces, self._kinds, pieces, strict=True):
            column.append(np.ascontiguousarray(piece, kind))
            self._kept -= column[-1].nbytes
        if self._kept < 0:
            self._write()

    def columns(self) -> Iterator[NDArray[Any]]:
        """Return the columns one after the other, each in memory; what has been returned is no more in the table."""
        if self._files:
            self._write()
        files: Sequence[_GrowingFile | None] = self._files or [None] * len(self._kinds)
        self._files = []
        for kind, pieces, file in zip(self._kinds, self._pieces, files, strict=True):
            whole = [np.empty(0, kind), *([] if file is None else [file.read(kind)]), *pieces]
            pieces.clear()
            yield whole[1] if len(whole) == 2 else np.concatenate(whole)

    def _write(self) -> None:
        """Move pieces to files, as long as there is room for them."""
        if not self._files:
            files = [_GrowingFile.open() for _ in self._kinds]
            self._files = [file for file in files if file is not None]
            if len(self._files) < len(files):
                self._files = []
        sizes = [sum(piece.nbytes for piece in pieces) for pieces in self._pieces]
        if self._files and all(file.has_room(size) for file, size in zip(self._files, sizes, strict=True)):
            for file, pieces in zip(self._files, self._pieces, strict=True):
                for piece in pieces:
                    file.append(piece)
                pieces.clear()
        else:
            self._kept = sys.maxsize


def release() -> None:
    """Give the pages of all scratch files back to the system, which keeps their contents."""
    with _ADDING:
        files = list(_MAPPED)
    for file in files:
        file.madvise(mmap.MADV_DONTNEED)


def give_back() -> None:
    """Give the memory of arrays that are no more back to the system, if there are scratch files.

    glibc keeps it otherwise; after small arrays of many ranks this is a third of what is used. It takes milliseconds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if _MAPPED else None
    if trim is not None:
        trim(0)


def _write(descriptor: int, values: NDArray[Any], place: int) -> int:
    """Write values at a place of a file, and return the place behind them. A write by the system costs a fifth of one
    to the mapped file, of which each new page is a fault."""
    left = values.reshape(-1).view(np.uint8).data
    while left:
        written = os.pwrite(descriptor, left, place)
        left, place = left[written:], place + written
    return place


class _GrowingFile:
    """A file without a name to which pieces are appended."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._end, self._size = descriptor, 0, 0
        self._closed = finalize(self, os.close, descriptor)

    @classmethod
    def open(cls) -> _GrowingFile | None:
        """Return an empty file; None if files cannot be used."""
        descriptor = _opened()
        return None if descriptor is None else cls(descriptor)

    def has_room(self, size: int) -> bool:
        """Whether ``size`` bytes more can be appended; then room is reserved for them."""
        if self._end + size <= self._size:
            return True
        more = max(self._end + size - self._size, min(max(self._size, _FILE), _LARGEST_FILE))
        if not _reserved(self._descriptor, self._size, more):
            return False
        self._size += more
        return True

    def append(self, values: NDArray[Any]) -> None:
        self._end = _write(self._descriptor, values, self._end)

    def read(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return the contents in memory, and close the file."""
        values = np.empty(self._end // kind.itemsize, kind)
        left, place = values.view(np.uint8).data, 0
        while left:
            got = os.preadv(self._descriptor, [left], place)
            left, place = left[got:], place + got
        self._closed()
        return values


def _new_file(size: int) -> tuple[mmap.mmap, int] | None:
    """Return a file of its own as memory, and its descriptor, which lives as long; None if there is no room for it, or
    the system cannot take its pages away."""
    descriptor = _opened()
    if descriptor is None:
        return None
    if not _reserved(descriptor, 0, size):
        os.close(descriptor)
        return None
    found = mmap.mmap(descriptor, size)
    finalize(found, os.close, descriptor)
    with _ADDING:
        first = not _MAPPED
        _MAPPED.add(found)
    if first:
        threading.Thread(target=_release_often, name="rankscope-scratch", daemon=True).start()
    return found, descriptor


def _opened() -> int | None:
    """Return the descriptor of a new file without a name; None if there can be none whose pages can be released."""
    if not hasattr(mmap, "MADV_DONTNEED") or not hasattr(os, "posix_fallocate"):
        return None
    try:
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    except OSError:
        return None


def _reserved(descriptor: int, begin: int, size: int) -> bool:
    """Reserve room in a file. Without it, a full disk would end the process at a write to its pages."""
    try:
        disk = shutil.disk_usage(tempfile.gettempdir())
        if disk.free < size + _SPARED * disk.total:
            return False
        os.posix_fallocate(descriptor, begin, size)
    except OSError:
        return False
    return True


def _release_often() -> None:
    """Release pages while there are scratch files. Those in use are mapped again when they are accessed next."""
    with contextlib.ExitStack() as opened:
        statm = opened.enter_context(_STATM.open("rb", buffering=0)) if _STATM.exists() else None
        while _MAPPED:
            time.sleep(_EVERY_S)
            if statm is None or _held(statm.fileno()) > _HELD:
                release()


def _held(statm: int) -> int:
    """Return the bytes of files that this process has mapped."""
    return int(os.pread(statm, 128, 0).split()[2]) * mmap.PAGESIZE
