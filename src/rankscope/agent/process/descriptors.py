"""File descriptors that are kept open in a training process.

A script may close all descriptors that it knows nothing of (``os.closerange``, as a daemon does), and its own files get
the same numbers then. So whoever keeps one remembers which file it is, and neither writes to nor closes another.
"""

from __future__ import annotations

import contextlib
import os

__all__ = ["close_own", "file_of"]


def file_of(descriptor: int) -> tuple[int, int]:
    """Device and inode of the file behind a descriptor.

    Raises:
        OSError: it is closed.
    """
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def close_own(descriptor: int, file: tuple[int, int]) -> None:
    """Close a descriptor if it is still that of ``file``. Never raises."""
    with contextlib.suppress(OSError):
        if file_of(descriptor) == file:
            os.close(descriptor)
