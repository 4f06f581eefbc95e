"""Files that are either complete or not there."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_atomically"]


def write_atomically(path: Path, text: str, *, errors: str = "replace") -> Path:
    """Write UTF-8 text under a temporary name beside ``path``, then rename.

    Raises:
        OSError: the folder cannot be written. Nothing is left behind and an older file stays as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(text.encode("utf-8", errors))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)  # os.replace: atomic on one file system
    finally:
        temporary.unlink(missing_ok=True)
    return path
