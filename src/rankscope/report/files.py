"""Files of a report: made again by the same command, and complete or as they were before."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.rundir.files import temporary_beside

__all__ = ["write_atomically"]


def write_atomically(path: Path, text: str) -> Path:
    """Write UTF-8 text under a temporary name beside ``path``, then rename. An older file is replaced.

    Lone surrogates, which UTF-8 cannot hold, become question marks.

    Raises:
        OSError: the folder cannot be written. Nothing is left behind and an older file stays as it was.
    """
    with temporary_beside(path) as temporary:
        with temporary.open("wb") as stream:
            stream.write(text.encode("utf-8", "replace"))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)  # os.replace: atomic on one file system
    return path
