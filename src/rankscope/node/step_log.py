"""Drain the ranks' rings of step times while the job runs, and place them in the run directory when it has ended."""

from __future__ import annotations

import gzip
from pathlib import Path

from rankscope.errors import RunDirError
from rankscope.records.step_log import STEP_LOG_CAPACITY, STEP_LOG_ENTRY, STEP_LOG_HEADER
from rankscope.rundir.files import place, temporary_beside
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

__all__ = ["StepLogDrain"]


class StepLogDrain:
    """Reads new entries of every ring of a spool into a plain file beside it; steps that were overwritten stay zero."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._drained: dict[Path, int] = {}

    def drain(self) -> None:
        """Take what is new. Call often enough: a ring holds 65,536 steps."""
        for ring in self._spool.pulses():
            with ring.open("rb") as stream:
                (count,) = STEP_LOG_HEADER.unpack(stream.read(STEP_LOG_HEADER.size))
                begun = self._drained.get(ring, 0)
                lost = max(0, count - begun - STEP_LOG_CAPACITY)
                parts = [bytes(lost * STEP_LOG_ENTRY.size)]
                position = begun + lost
                while position < count:
                    slot = position % STEP_LOG_CAPACITY
                    entries = min(count - position, STEP_LOG_CAPACITY - slot)
                    stream.seek(STEP_LOG_HEADER.size + slot * STEP_LOG_ENTRY.size)
                    parts.append(stream.read(entries * STEP_LOG_ENTRY.size))
                    position += entries
            if position > begun:
                with _log(ring).open("ab") as log:
                    log.write(b"".join(parts))
                self._drained[ring] = position

    def finish(self, run_dir: RunDir) -> None:
        """Drain once more, then compress and place all.

        Raises:
            OSError: the run directory cannot be written.
        """
        self.drain()
        for ring in self._drained:
            _, attempt, rank = ring.name.split("_")
            target = run_dir.pulse(int(attempt), int(rank))
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary_beside(target) as temporary:
                temporary.write_bytes(gzip.compress(_log(ring).read_bytes(), 1, mtime=0))
                try:
                    place(temporary, target)
                except RunDirError:
                    continue  # there already: an earlier finish placed it


def _log(ring: Path) -> Path:
    return ring.with_name(f"steps_{ring.name}")
