"""File descriptors that are kept open in a training process.

A script may close all descriptors that it does not know (``os.closerange``, as a daemon does), and files that it opens
later get the same numbers. Code that keeps a descriptor therefore remembers the file, and neither writes to nor closes
another.
"""

from __future__ import annotations

import contextlib
import os

__all__ = ["close_own", "file_of"]


def file_of(descriptor: int) -> tuple[int, int]:
    """Return device and inode of the file behind a descriptor.

    Raises:
        OSError: it is closed.
    """
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def close_own(descriptor: int, file: tuple[int, int]) -> None:
    """Close a descriptor if it still belongs to ``file``. Never raises."""
    with contextlib.suppress(OSError):
        if file_of(descriptor) == file:
            os.close(descriptor)
