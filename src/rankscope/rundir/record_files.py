"""Read records from files, with the checks of foreign files and foreign records."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from rankscope.errors import ForeignFileError
from rankscope.records.codec import from_json
from rankscope.rundir.foreign import read_foreign, shown
from rankscope.rundir.layout import RunDir

__all__ = ["BYTES_PER_RECORD", "RECORD_BYTES", "RUN_BYTES", "read_record", "run_limit"]

T = TypeVar("T")
RECORD_BYTES = 16 << 20
"""Largest record of one rank and window, a request or a specification, bytes. Such files take some kilobytes, and 0.6
for each sample of the accelerator's state."""
RUN_BYTES = 64 << 20
"""Largest record of a whole run (run.json, report.json, a node's result) unless :func:`run_limit` allows more, bytes.
Such files take some kilobytes for each rank and window."""
BYTES_PER_RECORD = 64 << 10
"""A record with as many samples of device and host as are kept takes some 40 kB."""


def read_record(cls: type[T], path: Path, limit: int = RECORD_BYTES, *, within_s: float | None = None) -> T:
    """Read the record of type ``cls`` that a file holds.

    Args:
        cls: a class of :mod:`rankscope.records`, or a similar dataclass.
        path: the file.
        limit: largest size of such a file, bytes.
        within_s: time limit in seconds, see :func:`rankscope.rundir.foreign.read_foreign`.

    Raises:
        ForeignFileError: the file cannot be read, or holds no such record.
    """
    try:
        return from_json(cls, read_foreign(path, limit, within_s=within_s))
    except ValueError as error:
        raise ForeignFileError(f"{shown(path)}: {error}; remove it, or give the right file") from error


def run_limit(run_dir: RunDir) -> int:
    """Return the largest size in bytes of a record of a whole run. It grows with the number of records in the
    directory."""
    return RUN_BYTES + BYTES_PER_RECORD * sum(1 for _ in run_dir.path.glob("attempt_*/window_*/rank_*.json"))
