"""What an input format is: how its files are recognised, and what reads them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rankscope.trace.columns import RankTrace

__all__ = ["Format"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One kind of trace files."""

    name: str
    """In a few words, for messages and tests."""
    files: str
    """Regular expression, searched for in the names of files without regard to case: which files of a folder are
    opened at all. A file that the user gave by its own path is opened whatever its name is."""
    fits: Callable[[bytes], bool]
    """Whether a file that begins with these bytes is of this format. Called again with more of them until one format
    fits, up to 1 MiB. What gzip compressed comes as plain bytes."""
    read: Callable[[Path], list[RankTrace]]
    """Read a file: the traces of all ranks in it, one as a rule. A rank is what the content says, and None where it
    says none. It raises :class:`rankscope.errors.TraceError` where nothing of the file can be used."""

    def __post_init__(self) -> None:
        """Refuse a pattern that cannot be compiled, before it enters a table."""
        re.compile(self.files)
