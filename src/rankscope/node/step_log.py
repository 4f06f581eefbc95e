"""Drain the ranks' rings of step times while the job runs, and place them in the run directory when it has ended."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from rankscope.errors import RunDirError
from rankscope.records.step_log import STEP_LOG_CAPACITY, STEP_LOG_ENTRY, STEP_LOG_HEADER
from rankscope.rundir.files import place, stored, temporary_beside
from rankscope.rundir.foreign import open_foreign
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

__all__ = ["StepLogDrain"]

_RING_BYTES = STEP_LOG_HEADER.size + STEP_LOG_CAPACITY * STEP_LOG_ENTRY.size
_MOST_STEPS = 1 << 28
"""A log of 4 GiB, of three days at a millisecond a step."""


class StepLogDrain:
    """Reads new entries of every ring of a spool into a plain file beside it; steps that were overwritten stay zero.

    How far a ring was read is seen by the length of that file. One ring that cannot be read costs that ring only.

    Args:
        spool: of this node.
        tell: called for each ring that cannot be read in the end, with the reason.
    """

    def __init__(self, spool: Spool, tell: Callable[[str], None] = lambda _: None) -> None:
        self._spool = spool
        self._tell = tell
        self.left: dict[str, str] = {}
        """Name of each ring whose log could not be placed, and why."""

    def drain(self) -> dict[str, str]:
        """Take what is new, and return why rings could not be read. Call often enough: a ring holds 65,536 steps."""
        unread = {}
        for ring in self._spool.pulses():
            if (why := self._try_to_drain(ring)) is not None:
                unread[ring.name] = why
        return unread

    def _try_to_drain(self, ring: Path) -> str | None:
        try:
            self._drain(ring)
        except Exception as error:
            return str(error) or type(error).__name__
        return None

    def _drain(self, ring: Path) -> None:
        log = self._spool.step_log(ring)
        with open_foreign(ring, _RING_BYTES) as stream:
            head = stream.read(STEP_LOG_HEADER.size)
            try:
                (count,) = STEP_LOG_HEADER.unpack(head)
            except struct.error:
                raise ValueError("it is empty: no step was logged") from None
            if count > _MOST_STEPS:
                raise ValueError(f"it tells of {count} steps, and a log holds at most {_MOST_STEPS}")
            begun = log.stat().st_size // STEP_LOG_ENTRY.size if log.exists() else 0
            if log.exists() and log.stat().st_size % STEP_LOG_ENTRY.size:  # a helper died, or the disk was full
                os.truncate(log, begun * STEP_LOG_ENTRY.size)
            lost = max(0, count - begun - STEP_LOG_CAPACITY)
            position = begun + lost
            parts = []
            while position < count:
                slot = position % STEP_LOG_CAPACITY
                entries = min(count - position, STEP_LOG_CAPACITY - slot)
                stream.seek(STEP_LOG_HEADER.size + slot * STEP_LOG_ENTRY.size)
                part = stream.read(entries * STEP_LOG_ENTRY.size)
                parts.append(part)
                position += entries
                if len(part) < entries * STEP_LOG_ENTRY.size:
                    break  # the rank's disk was full: what follows was never written
        if parts or lost:
            with log.open("ab") as target:
                target.truncate((begun + lost) * STEP_LOG_ENTRY.size)  # a hole reads as zeros
                target.seek(0, os.SEEK_END)
                for part in parts:
                    target.write(part[: len(part) // STEP_LOG_ENTRY.size * STEP_LOG_ENTRY.size])

    def counts(self) -> dict[tuple[int, int], int]:
        """Number of steps taken out of each ring so far, by attempt and rank."""
        found = {}
        for ring in self._spool.pulses():
            log, name = self._spool.step_log(ring), ring.name.split("_")
            if log.exists() and len(name) == 3 and name[1].isdecimal() and name[2].isdecimal():
                found[int(name[1]), int(name[2])] = log.stat().st_size // STEP_LOG_ENTRY.size
        return found

    def finish(self, run_dir: RunDir) -> None:
        """Drain once more, then compress, place and remove all. Never raises; see :attr:`left`."""
        for name, why in self.drain().items():
            self._tell(f"{name} could not be read, a rank's times of all steps are missing: {why}")
        for ring in self._spool.pulses():
            log = self._spool.step_log(ring)
            if not log.exists():
                ring.unlink(missing_ok=True)
                continue
            try:
                _, attempt, rank = ring.name.split("_")
                target = run_dir.pulse(int(attempt), int(rank))
                target.parent.mkdir(parents=True, exist_ok=True)
                _compress_new(log, target)
                log.unlink()
                ring.unlink(missing_ok=True)
            except Exception as error:
                why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                self.left[ring.name] = why
            else:
                self.left.pop(ring.name, None)


def _compress_new(source: Path, target: Path) -> None:
    with temporary_beside(target) as temporary:
        with (
            source.open("rb") as plain,
            temporary.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0) as packed,
        ):
            shutil.copyfileobj(plain, packed)
        with temporary.open("rb") as again:
            digest = hashlib.sha256()
            while block := again.read(1 << 20):
                digest.update(block)
        stored(temporary, digest.hexdigest())
        try:
            place(temporary, target)
        except RunDirError:
            if not target.stat().st_size:
                raise
            # There already: a helper that died had placed it.
