"""Limits of what a node may write to the disk of the run directory, which the job and its checkpoints share."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DiskLimits"]

_PACKS = 4
"""A trace is usually compressed to a tenth; this factor is certain."""


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """Limits in bytes; 0: no limit."""

    leave_free: int = 0
    """Bytes of the disk to be left free."""
    most: int = 0
    """Largest size of all traces that this node places."""

    def require(self, folder: Path, size: int, placed: int, *, packed: bool = False, beside: int = 0) -> None:
        """Check that a trace may be written, with the files beside it.

        Args:
            folder: the target folder.
            size: of the trace's text or, if it is compressed already, of that file.
            placed: bytes of traces that this node has placed so far.
            packed: whether it is compressed.
            beside: bytes of a memory snapshot, of which only the free space is checked.

        Raises:
            OSError: it may not be written; the reason is its ``strerror``.
        """
        more = size if packed else size // _PACKS
        if self.most and placed + more > self.most:
            raise OSError(
                errno.EDQUOT, f"this node has placed {placed / 1e9:.2f} GB of gather.most_gb={self.most / 1e9:g}"
            )
        if not self.leave_free:
            return
        store = os.statvfs(folder)
        free = store.f_bavail * store.f_frsize
        # a store that does not count its blocks reports 0
        if store.f_blocks and free - more - beside < self.leave_free:
            raise OSError(
                errno.ENOSPC,
                f"{folder} has {free / 1e9:.2f} GB free, of which gather.leave_free_gb={self.leave_free / 1e9:g} stay",
            )
