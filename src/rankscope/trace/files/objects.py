"""One object for many traces: their columns, followed by a list of them, in a file that is either complete or absent.

An object is an uncompressed zip archive of Parquet files, one per trace. Its directory is at the end, so a truncated
file has none. Each member has a checksum: a corrupt one affects only its rank.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from rankscope.errors import ForeignFileError
from rankscope.limits import Attempt, Rank, WindowNumber
from rankscope.records.codec import from_json, to_json
from rankscope.records.report import SourceFile
from rankscope.rundir.files import temporary_beside
from rankscope.rundir.foreign import open_foreign, shown
from rankscope.trace.columns import RankTrace
from rankscope.trace.files.find import Candidate
from rankscope.trace.files.parquet import PARQUET_VERSION, read_columns, write_columns

__all__ = [
    "MOST_BYTES",
    "OBJECT_VERSION",
    "SUFFIX",
    "Contents",
    "Member",
    "ObjectReader",
    "ObjectWriter",
    "ReducedFile",
    "read_object",
]

OBJECT_VERSION = 1
"""To be raised whenever the list or its meaning changes; the columns have a version of their own."""
SUFFIX = ".columns"
_LIST = "contents.json"
_KEY = f"reduced {OBJECT_VERSION} {PARQUET_VERSION}".encode()
MOST_BYTES = 1 << 40
_MOST_LISTED = 1 << 28


@dataclass(kw_only=True)
class Member:
    """One trace of a file."""

    name: str
    """Name in the archive."""
    part: str = ""
    """Identifies its process among the others of a merged file."""


@dataclass(kw_only=True)
class ReducedFile:
    """A file that was reduced, as it was found."""

    path: str
    """In an object of a run directory, relative to that directory, so that it can be moved."""
    name: str
    name_rank: Rank | None = None
    format: str
    attempt: Attempt | None = None
    window: WindowNumber | None = None
    members: list[Member] = field(default_factory=list)
    reason: str | None = None
    """Why there are no traces."""


@dataclass(kw_only=True)
class Contents:
    """Contents of an object."""

    version: int = OBJECT_VERSION
    columns: int = PARQUET_VERSION
    files: list[ReducedFile] = field(default_factory=list)
    aside: list[SourceFile] = field(default_factory=list)
    """Files beside them that are not traces."""
    snapshots: list[str] = field(default_factory=list)
    pulses: list[str] = field(default_factory=list)


class ObjectWriter:
    """Adds traces one by one, so that at most one is in memory."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._count = archive, 0
        self.contents = Contents()

    def add(self, trace: RankTrace) -> Member:
        """Write the columns of a trace."""
        name = f"{self._count:06d}.parquet"
        self._count += 1
        text = io.BytesIO()
        write_columns(trace, text, _KEY)
        self._archive.writestr(zipfile.ZipInfo(name), text.getbuffer())
        return Member(name=name, part=trace.part)

    @classmethod
    @contextmanager
    def open(cls, target: Path) -> Iterator[ObjectWriter]:
        """Write an object. It appears under its name when it is completely on the disk; after an error it does not.

        Raises:
            OSError: it cannot be written.
        """
        with temporary_beside(target) as temporary:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
                writer = cls(archive)
                yield writer
                archive.writestr(zipfile.ZipInfo(_LIST), to_json(writer.contents))
            temporary.replace(target)


class ObjectReader:
    """Reads an object, which may be of any origin."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self._name = archive, name
        self.contents = from_json(Contents, self._bytes(_LIST, _MOST_LISTED))
        if (self.contents.version, self.contents.columns) != (OBJECT_VERSION, PARQUET_VERSION):
            raise ForeignFileError(
                f"{shown(name)}: version {self.contents.version}.{self.contents.columns} of another rankscope; this "
                f"one reads {OBJECT_VERSION}.{PARQUET_VERSION}; reduce its traces again"
            )

    def read(self, member: Member, path: Path) -> RankTrace | str:
        """Return the trace of a member, or why it cannot be used. ``path``: the file that it was read from."""
        import pyarrow as pa

        try:
            text = self._bytes(member.name, MOST_BYTES)
            trace = read_columns(pa.BufferReader(text), len(text), path, _KEY)
        except Exception as error:  # pyarrow raises many kinds of errors on corrupt files
            return f"{shown(self._name)}: {member.name} is damaged ({type(error).__name__}); reduce {path} again"
        if trace is None:
            return f"{shown(self._name)}: {member.name} holds other columns; reduce {path} again"
        trace.part = member.part
        return trace

    def checksums(self, file: ReducedFile) -> tuple[int, ...]:
        """Return the checksums of the traces of a file: equal ones are of the same columns."""
        names = set(self._archive.namelist())
        return tuple(self._archive.getinfo(m.name).CRC if m.name in names else -1 for m in file.members)

    def decoded(self, file: ReducedFile, path: Path) -> list[RankTrace] | str:
        """Return the traces of a file, or why there are none. ``path``: the file that they were read from."""
        if file.reason is not None:
            return file.reason
        traces = [self.read(member, path) for member in file.members]
        reasons = [found for found in traces if isinstance(found, str)]
        return reasons[0] if reasons else [found for found in traces if not isinstance(found, str)]

    def _bytes(self, name: str, most: int) -> bytes:
        about = self._archive.getinfo(name)
        if about.compress_type != zipfile.ZIP_STORED or about.file_size > most:
            raise ValueError(f"{name} is no member that rankscope writes")
        return self._archive.read(about)

    @classmethod
    @contextmanager
    def open(cls, name: str, opened: Callable[[], BinaryIO]) -> Iterator[ObjectReader]:
        """Open an object, given its name for messages and a function that opens it.

        Raises:
            ForeignFileError: it is not an object, is incomplete, or has another version.
            OSError: it cannot be read.
        """
        with opened() as stream:
            try:
                archive = zipfile.ZipFile(stream)
                reader = cls(archive, name)
            except (zipfile.BadZipFile, KeyError, ValueError, NotImplementedError, EOFError) as error:
                raise ForeignFileError(
                    f"{shown(name)}: not a whole object of reduced traces ({error}); reduce its traces again"
                ) from error
            with archive:
                yield reader


def read_object(path: Path) -> list[tuple[Candidate, list[RankTrace] | str]]:
    """Read an object of a run directory, which replaces traces that were not kept.

    Raises:
        ForeignFileError: it is not an object, is incomplete, or has another version.
        OSError: it cannot be read.
    """
    with ObjectReader.open(str(path), lambda: open_foreign(path, MOST_BYTES)) as reader:
        found = []
        for file in reader.contents.files:
            place = Path(os.path.normpath(path.parent / file.path))
            candidate = Candidate(place, file.name, file.name_rank, file.format, file.attempt, file.window)
            found.append((candidate, reader.decoded(file, place)))
        return found
