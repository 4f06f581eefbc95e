"""Records as files: opened like any foreign file, and checked like any foreign record."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from rankscope.errors import ForeignFileError
from rankscope.records.codec import from_json
from rankscope.rundir.foreign import read_foreign, shown
from rankscope.rundir.layout import RunDir

__all__ = ["RECORD_BYTES", "RUN_BYTES", "read_record", "run_limit"]

T = TypeVar("T")
RECORD_BYTES = 16 << 20
"""Of what one rank says of one window, a request, a specification: some kilobytes, and 0.6 for each sample of its
accelerator's state."""
RUN_BYTES = 64 << 20
"""Of what tells of all ranks (run.json, report.json, a node's result), where there are not more than
:func:`run_limit` finds: some kilobytes for each rank and window."""
_BYTES_PER_RECORD = 64 << 10


def read_record(cls: type[T], path: Path, limit: int = RECORD_BYTES, *, within_s: float | None = None) -> T:
    """Read the record of type ``cls`` that a file holds.

    Args:
        cls: one of :mod:`rankscope.records`, or of its kind.
        path: the file.
        limit: bytes that such a file holds at most.
        within_s: as :func:`rankscope.rundir.foreign.read_foreign` has it.

    Raises:
        ForeignFileError: the file cannot be read, or holds no such record.
    """
    try:
        return from_json(cls, read_foreign(path, limit, within_s=within_s))
    except ValueError as error:
        raise ForeignFileError(f"{shown(path)}: {error}; remove it, or give the right file") from error


def run_limit(run_dir: RunDir) -> int:
    """Bytes that a file may have that tells of all ranks and windows of a run: the more, the more of them left records
    in its directory."""
    return RUN_BYTES + _BYTES_PER_RECORD * sum(1 for _ in run_dir.path.glob("attempt_*/window_*/rank_*.json"))
