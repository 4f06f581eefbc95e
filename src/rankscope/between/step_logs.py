"""Step logs as columns of numbers, for all versions of the format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope.errors import ForeignFileError
from rankscope.records.running.step_log import (
    DEVICE,
    RECORDED,
    STEP_LOG_COLUMNS,
    STEP_LOG_ENTRY,
    STEP_LOG_ENTRY_V1,
    STEP_LOG_HEADER,
    STEP_LOG_VERSION,
    begins_with_header,
)
from rankscope.rundir.foreign import read_foreign_gzip, shown

__all__ = ["ENTRY", "MAX_BYTES", "MAX_STEPS", "StepTimes", "last_attempt", "parse", "read_step_log"]

MAX_STEPS = 1 << 24
"""Largest number of steps of a run that are read: nineteen days at ten a second."""
MAX_BYTES = 1 << 28
"""Largest size of an unpacked log: 3.7 million single steps, or 30 million folded ones."""

ENTRY = np.dtype(
    [(name, "<u4") for name in STEP_LOG_COLUMNS]
    + [("span", "<u2"), ("flags", "<u2"), ("calls", "<u2"), ("calls_device", "<u2"), ("end_ns", "<u8")]
)
_ENTRY_V1 = np.dtype([("step", "<u4"), ("input", "<u4"), ("gc", "<u4"), ("flags", "<u4")])
_PLACE = re.compile(r"attempt_(\d{1,6})/pulse/rank_(\d{1,6})\.bin\.gz$")
assert (ENTRY.itemsize, _ENTRY_V1.itemsize) == (STEP_LOG_ENTRY.size, STEP_LOG_ENTRY_V1.size)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One rank's log: entries in the order of steps; entry i stands for ``spans[i]`` steps."""

    entries: npt.NDArray[Any]
    spans: npt.NDArray[np.int64]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.spans.sum())

    @property
    def has_parts(self) -> bool:
        """Whether the parts of a step were timed, which logs of version 1 lack."""
        return "before" in (self.entries.dtype.names or ())

    @property
    def has_device_times(self) -> bool:
        """Whether most steps have times of the device."""
        return self.has_parts and bool(((self.flags() & DEVICE) > 0).mean() > 0.5)

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column of :data:`~rankscope.records.running.step_log.STEP_LOG_COLUMNS` by step, in ms.

        Folded steps have their mean. A column that the log lacks is 0.
        """
        if name not in (self.entries.dtype.names or ()):
            return np.zeros(self.steps)
        return np.repeat(self.entries[name] / 1e3, self.spans)

    def flags(self) -> npt.NDArray[np.uint16]:
        """Return the flags by step; see :mod:`rankscope.records.running.step_log`."""
        own = self.entries["flags"].astype(np.uint16)
        return np.repeat(own if self.has_parts else np.where(own > 0, RECORDED, 0).astype(np.uint16), self.spans)

    def between(self, begin: int, end: int) -> StepTimes:
        """Return steps ``begin`` to ``end`` (excluded), counted from the first of this log."""
        ends = np.cumsum(self.spans)
        spans = np.minimum(ends, end) - np.maximum(ends - self.spans, begin)
        kept = spans > 0
        return StepTimes(self.entries[kept], spans[kept])

    def is_exact(self) -> npt.NDArray[np.bool_]:
        """Mask of the steps that have an entry of their own."""
        return np.repeat(self.spans == 1, self.spans)


def parse(raw: bytes, what: str) -> StepTimes:
    """Read a log from its bytes.

    Args:
        raw: the unpacked bytes.
        what: name of the log, for error messages.

    Raises:
        ForeignFileError: it is no step log, or of an unknown version.
    """
    if not begins_with_header(raw):
        if not raw or len(raw) % _ENTRY_V1.itemsize:
            raise ForeignFileError(f"{what}: {len(raw)} bytes are no whole number of steps")
        old = np.frombuffer(raw, _ENTRY_V1)
        return StepTimes(old, np.ones(len(old), np.int64))
    head, rest = raw[: STEP_LOG_HEADER.size], len(raw) - STEP_LOG_HEADER.size
    if rest < 0:
        raise ForeignFileError(f"{what}: {len(raw)} bytes are no step log")
    _, version, size, _ = STEP_LOG_HEADER.unpack(head)
    if (version, size) != (STEP_LOG_VERSION, ENTRY.itemsize):
        raise ForeignFileError(
            f"{what}: a step log of version {version}; this rankscope knows 1 and {STEP_LOG_VERSION}"
        )
    if not rest or rest % size:
        raise ForeignFileError(f"{what}: {len(raw)} bytes are no whole number of steps")
    entries = np.frombuffer(raw, ENTRY, offset=len(head))
    spans = np.maximum(entries["span"].astype(np.int64), 1)
    if spans.sum() > MAX_STEPS:
        raise ForeignFileError(f"{what}: it tells of {spans.sum()} steps; at most {MAX_STEPS} are read")
    return StepTimes(entries, spans)


def read_step_log(path: Path) -> StepTimes:
    """Read a rank's log from the run directory.

    Raises:
        ForeignFileError: it cannot be read, or is no step log.
    """
    return parse(read_foreign_gzip(path, MAX_BYTES), shown(path))


def last_attempt(paths: Sequence[Path], notes: list[str]) -> tuple[int, dict[int, Path]]:
    """Return the number of the last attempt, and the log of each of its ranks, in order of ranks.

    Args:
        paths: ``.../attempt_K/pulse/rank_NNNNN.bin.gz``; others are ignored.
        notes: receives a line where several runs were given.
    """
    found: dict[tuple[int, Path], dict[int, Path]] = {}
    for path in paths:
        place = _PLACE.search(path.as_posix())
        if place:
            found.setdefault((int(place[1]), path.parent), {})[int(place[2])] = path
    if not found:
        return 0, {}
    attempt, folder = max(found)
    if len({folder.parents[1] for _, folder in found}) > 1:
        notes.append(f"the step times are those of {folder.parents[1].name} only: several runs were given")
    return attempt, dict(sorted(found[attempt, folder].items()))
