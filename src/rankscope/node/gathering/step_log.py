"""Drain the ranks' rings of step times while the job runs, and place them in the run directory when it has ended."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rankscope.errors import RunDirError
from rankscope.node.gathering.call_times import CallTimesToAdd
from rankscope.node.gathering.folding import MOST_IN_ONE, fold
from rankscope.node.gathering.gather import own_record
from rankscope.node.gathering.placing import Placing
from rankscope.records.running.step_log import (
    STEP_LOG_CAPACITY,
    STEP_LOG_COLUMNS,
    STEP_LOG_ENTRY,
    STEP_LOG_HEADER,
    STEP_LOG_MAGIC,
    STEP_LOG_VERSION,
)
from rankscope.rundir.files import place, sha256_of, stored, temporary_beside
from rankscope.rundir.foreign import open_foreign
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

__all__ = ["KEPT_EXACT", "StepLogDrain"]

_RING_BYTES = STEP_LOG_HEADER.size + STEP_LOG_CAPACITY * STEP_LOG_ENTRY.size
_MOST_STEPS = 1 << 28
"""Three days at a millisecond per step. Folded, that is 2.2 GB."""
KEPT_EXACT = STEP_LOG_CAPACITY
"""At least this many of the last steps are kept one by one, however many there are; for older ones see
:mod:`.folding`."""
_HEADER = STEP_LOG_HEADER.pack(STEP_LOG_MAGIC, STEP_LOG_VERSION, STEP_LOG_ENTRY.size, 0)
_SIZE = STEP_LOG_ENTRY.size
_NOTHING = (0,) * len(STEP_LOG_COLUMNS)
_SPAN = struct.Struct("<H")
_SPAN_AT = STEP_LOG_ENTRY.size - 16
_END = struct.Struct("<Q")


class _Taken(NamedTuple):
    """State of one ring: bytes in the log, steps they stand for, and where its exact part begins."""

    size: int
    steps: int
    exact: int


class StepLogDrain:
    """Reads new entries of every ring of a spool into a plain file beside it; entries of overwritten steps stay zero.

    The length of that file shows how far a ring was read. A ring that cannot be read does not affect the others.

    Args:
        spool: of this node.
        tell: called with the reason for each ring that cannot be read at the end, or lacks steps.
    """

    def __init__(self, spool: Spool, tell: Callable[[str], None] = lambda _: None) -> None:
        self._spool = spool
        self._tell = tell
        self._taken: dict[Path, _Taken] = {}
        self._calls: dict[Path, CallTimesToAdd] = {}
        self._ends: dict[Path, int] = {}
        self.left: dict[str, str] = {}
        """Name of each ring whose log could not be placed -> why."""

    def drain(self) -> dict[str, str]:
        """Read new entries, and return why rings could not be read. To be called often enough: a ring holds 65,536
        steps."""
        unread = {}
        for ring in self._spool.step_rings():
            if (why := self._try_to_drain(ring)) is not None:
                unread[ring.name] = why
        return unread

    def compare(self) -> None:
        """Report each rank that ended normally but whose log ends before its last step."""
        self.drain()
        counts = self.counts()
        for path in self._spool.process_records():
            process = own_record(path)
            if process is None or process.status != "ok":
                continue
            logged = counts.get((process.attempt, process.rank), 0)
            if 0 < logged < process.steps_counted or (logged == 0 and process.steps_counted > 0):
                self._tell(
                    f"rank {process.rank}: the log of all steps ends with step {logged} of {process.steps_counted}; "
                    "was the node's own disk full?"
                )

    def _try_to_drain(self, ring: Path) -> str | None:
        try:
            self._drain(ring)
            self._add_calls(ring)
        except Exception as error:
            return str(error) or type(error).__name__
        return None

    def _drain(self, ring: Path) -> None:
        log = self._spool.step_log(ring)
        with open_foreign(ring, _RING_BYTES) as stream:
            count = _count(stream.read(STEP_LOG_HEADER.size))
            taken = self._so_far(log)
            lost = max(0, count - taken.steps - STEP_LOG_CAPACITY)
            position, read = taken.steps + lost, 0
            parts = _nothing_of(lost)
            while position < count:
                slot = position % STEP_LOG_CAPACITY
                entries = min(count - position, STEP_LOG_CAPACITY - slot)
                stream.seek(STEP_LOG_HEADER.size + slot * _SIZE)
                part = stream.read(entries * _SIZE)
                parts.append(part[: len(part) // _SIZE * _SIZE])
                read += len(part) // _SIZE
                position += entries
                if len(part) < entries * _SIZE:
                    break  # the rank's disk was full: later entries were never written
        if not parts:
            return
        new = b"".join(parts)
        self._ends[ring] = _END.unpack_from(new, len(new) - _END.size)[0]
        del self._taken[log]  # until all is written, the file shows how far the ring was read
        with log.open("ab") as target:
            target.write(new if taken.size else _HEADER + new)
        size = (taken.size or STEP_LOG_HEADER.size) + len(new)
        self._taken[log] = self._folded(log, _Taken(size, taken.steps + lost + read, taken.exact))

    def _add_calls(self, ring: Path) -> None:
        """Add to the log what the rank has found out of its calls since."""
        log = self._spool.step_log(ring)
        taken = self._taken.get(log)
        if taken is not None and taken.size:
            calls = self._calls.setdefault(ring, CallTimesToAdd(self._spool.call_times(ring)))
            calls.add_to(log, taken.steps, taken.exact, taken.size)

    def _so_far(self, log: Path) -> _Taken:
        """Return what was read from a ring, by this helper or an earlier one."""
        if log not in self._taken:
            self._taken[log] = _scanned(log)
        return self._taken[log]

    def _folded(self, log: Path, taken: _Taken) -> _Taken:
        """Fold the older half of the exact steps once there are twice as many as have to be exact."""
        if taken.size - taken.exact < 2 * KEPT_EXACT * _SIZE:
            return taken
        end = taken.size - KEPT_EXACT * _SIZE
        with log.open("rb") as source, temporary_beside(log) as temporary:
            with temporary.open("wb") as target:
                target.write(source.read(taken.exact))
                target.write(fold(source.read(end - taken.exact)))
                exact = target.tell()
                shutil.copyfileobj(source, target)
                size = target.tell()
            temporary.replace(log)
        return _Taken(size, taken.steps, exact)

    def counts(self) -> dict[tuple[int, int], int]:
        """Return the number of steps read from each ring so far, by attempt and rank."""
        found = {}
        for ring in self._spool.step_rings():
            log = self._spool.step_log(ring)
            if log.exists() and (whose := _whose(ring)) is not None:
                found[whose] = self._so_far(log).steps
        return found

    def progress(self) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """Return :meth:`counts`, and the end of the last step that this helper has read from each ring, in ns on
        CLOCK_REALTIME. Ranks write several steps at once, so that it may have been a while ago."""
        ends = {whose: end for ring, end in self._ends.items() if (whose := _whose(ring)) is not None}
        return self.counts(), ends

    def finish(self, run_dir: RunDir, placing: Placing | None = None) -> None:
        """Drain once more, then compress, place and remove all logs. Never raises; see :attr:`left`."""
        for name, why in self.drain().items():
            self._tell(f"{name} could not be read, a rank's times of all steps are missing: {why}")
        for ring in self._spool.step_rings():
            log = self._spool.step_log(ring)
            if not log.exists():
                ring.unlink(missing_ok=True)
                continue
            try:
                _, attempt, rank = ring.name.split("_")
                target = run_dir.step_log(int(attempt), int(rank))
                placing = placing or Placing(run_dir)
                placing.folder(target.parent)
                _compress_new(log, target, placing, self._spool.path)
                log.unlink()
                ring.unlink(missing_ok=True)
                self._spool.call_times(ring).unlink(missing_ok=True)
            except Exception as error:
                why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                self.left[ring.name] = why
            else:
                self.left.pop(ring.name, None)


def _whose(ring: Path) -> tuple[int, int] | None:
    """Return attempt and rank of a ring."""
    name = ring.name.split("_")
    return (int(name[1]), int(name[2])) if len(name) == 3 and name[1].isdecimal() and name[2].isdecimal() else None


def _count(head: bytes) -> int:
    """Return the number of steps logged in a ring, from its first bytes.

    Raises:
        ValueError: it is not a ring, or one of another version.
    """
    try:
        magic, version, size, count = STEP_LOG_HEADER.unpack(head)
    except struct.error:
        raise ValueError("it is empty: no step was logged") from None
    if (magic, version, size) != (STEP_LOG_MAGIC, STEP_LOG_VERSION, _SIZE):
        raise ValueError("another version of rankscope has written it")
    if count > _MOST_STEPS:
        raise ValueError(f"it tells of {count} steps, and a log holds at most {_MOST_STEPS}")
    return int(count)


def _nothing_of(steps: int) -> list[bytes]:
    """Return entries for steps without any information."""
    spans = [MOST_IN_ONE] * (steps // MOST_IN_ONE) + ([steps % MOST_IN_ONE] if steps % MOST_IN_ONE else [])
    return [STEP_LOG_ENTRY.pack(*_NOTHING, span, 0, 0, 0, 0) for span in spans]


def _scanned(log: Path) -> _Taken:
    """Determine what an earlier helper read. A helper that died, or a full disk, can have left an incomplete entry."""
    if not log.exists() or log.stat().st_size < STEP_LOG_HEADER.size:
        log.unlink(missing_ok=True)
        return _Taken(0, 0, STEP_LOG_HEADER.size)
    steps, size, exact = 0, STEP_LOG_HEADER.size, STEP_LOG_HEADER.size
    with log.open("rb") as stream:
        stream.seek(size)
        while len(block := stream.read(_SIZE * 4096)) >= _SIZE:
            for at in range(0, len(block) - _SIZE + 1, _SIZE):
                span = _SPAN.unpack_from(block, at + _SPAN_AT)[0]
                size += _SIZE
                steps += max(span, 1)
                if span > 1:
                    exact = size
    os.truncate(log, size)
    return _Taken(size, steps, exact)


def _compress_new(source: Path, target: Path, placing: Placing, own_disk: Path) -> None:
    with temporary_beside(own_disk / target.name if placing.sealed else target) as temporary:
        with (
            source.open("rb") as plain,
            temporary.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0) as packed,
        ):
            shutil.copyfileobj(plain, packed)
        if placing.sealed:
            placing.copy(temporary, target)
            return
        digest = sha256_of(temporary)
        stored(temporary, digest)
        try:
            place(temporary, target)
        except RunDirError:
            if not target.stat().st_size:
                raise
            # It exists already: placed by a helper that died.
            digest = sha256_of(target)
    placing.known(target, digest)
