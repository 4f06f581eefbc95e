"""Definition of an input format: how its files are recognised, and the function that reads them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankscope.trace.columns import RankTrace

__all__ = ["Format"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One kind of trace file."""

    name: str
    """A few words, for messages and tests."""
    files: str
    """Regular expression, searched in file names ignoring case: only matching files of a folder are opened. A file that
    the user gave by its own path is opened whatever its name."""
    fits: Callable[[bytes], bool]
    """Whether a file that begins with these bytes has this format. Called again with more of them until one format
    fits, up to 1 MiB. Gzip files are passed decompressed."""
    read: Callable[[Path], list[RankTrace]]
    """Read a file: the traces of all ranks in it, usually one. A trace's rank is the one in the content, and None if
    there is none. It raises :class:`rankscope.errors.TraceError` if nothing of the file can be used."""

    def __post_init__(self) -> None:
        """Reject a pattern that cannot be compiled, before it enters a table."""
        re.compile(self.files)
