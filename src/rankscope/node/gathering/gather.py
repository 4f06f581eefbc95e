"""From the spool of a node to the run directory: compress, check, place, verify, and only then remove.

All state is on the disk, so that a helper that replaces one that died continues where that one stopped. A file that
cannot be read or placed does not affect the others; it stays in the spool.
"""

from __future__ import annotations

import contextlib
import gzip
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope.errors import ForeignFileError, RunDirError
from rankscope.node.gathering.disk_limits import DiskLimits
from rankscope.node.gathering.holding import Holding
from rankscope.node.gathering.packing import pack
from rankscope.node.gathering.placing import Placing
from rankscope.node.gathering.reducing import Reducing
from rankscope.records.codec import to_json
from rankscope.records.rank import NOT_PLACED, RankRecord
from rankscope.records.secrets import mask_text
from rankscope.rundir.files import place, replace_text, sha256_of, stored, temporary_beside
from rankscope.rundir.layout import RunDir
from rankscope.rundir.record_files import read_record
from rankscope.rundir.spool import Spool

__all__ = ["Gatherer", "files_of", "own_record", "recordings_of"]

_BLOCK = 1 << 20
_LONGEST_PAUSE_S = 30.0
"""Between two attempts on a store that fails, because each may compress a gigabyte in vain."""


class Gatherer:
    """Takes the files that the ranks of one node announce.

    Args:
        spool: of this node.
        run_dir: of the run.
        complete: adds to each record what this process knows.
        moved: called with each number of bytes that was handled.
        clock: in seconds, monotonic.
        placing: places files; None: unencrypted.
        reducing: converts traces to columns, which are kept instead; None: all traces are kept.
        holding: retains the traces that were converted to columns; None: these are removed.
        limits: limits of what may be written.
    """

    def __init__(
        self,
        spool: Spool,
        run_dir: RunDir,
        *,
        complete: Callable[[RankRecord], None] = lambda _: None,
        moved: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        placing: Placing | None = None,
        reducing: Reducing | None = None,
        holding: Holding | None = None,
        limits: DiskLimits | None = None,
    ) -> None:
        self._spool = spool
        self._run_dir = run_dir
        self._complete = complete
        self._moved = moved
        self._clock = clock
        self.placing = placing or Placing(run_dir)
        self._reducing, self._holding, self._limits = reducing, holding, limits or DiskLimits()
        self._failures = 0
        self._next_try = 0.0
        self.left: dict[str, str] = {}
        """Name of each file of the spool that could not be placed so far -> why."""

    def gather(self, *, last: bool = True) -> list[RankRecord]:
        """Take every window record that ranks have announced, with its trace, and place both in the run directory.

        Never raises because of a file or of the store; see :attr:`left`. After a failure of the store the next attempt
        waits, twice as long each time, unless it is the last.

        Args:
            last: the job has ended, so that a trace that libkineto has not finished by now never will be.

        Returns:
            The records placed by this call, with size, digest and status set.
        """
        if not last and self._clock() < self._next_try:
            return []
        placed, failed = [], False
        if self._reducing is not None:
            self._reducing.look(self._announced(), last=last)
        for path in self._spool.records():
            try:
                record = self._take(path, last)
            except OSError as error:
                failed = True
                self.left[path.name] = error.strerror or str(error)
                continue
            except Exception as error:  # an invalid record or name affects only that window of that rank
                self.left[path.name] = f"{type(error).__name__}: {error}"
                continue
            self.left.pop(path.name, None)
            if record is not None:
                placed.append(record)
        self._failures = self._failures + 1 if failed else 0
        self._next_try = self._clock() + min(_LONGEST_PAUSE_S, 2.0 ** min(self._failures, 10)) if failed else 0.0
        return placed

    def gather_out_of_memory(self) -> None:
        """Place the snapshots that ranks took at an out-of-memory error. Never raises; see :attr:`left`."""
        for path in self._spool.out_of_memories():
            self._place_out_of_memory(path)

    def _place_out_of_memory(self, path: Path) -> None:
        try:
            attempt, rank = path.stem.split("_")[2:]
            target = self._run_dir.out_of_memory(int(attempt), int(rank))
            self.placing.folder(target.parent)
            self._limits.require(target.parent, 0, 0, beside=path.stat().st_size)
            self.placing.copy(path, target)
            path.unlink()
        except Exception as error:
            self.left[path.name] = _in_words(error)
        else:
            self.left.pop(path.name, None)

    def records(self) -> list[RankRecord]:
        """Return all window records of this node: those placed, and for each file still in the spool one that says
        so."""
        records = [record for path in self._spool.placed_records() if (record := own_record(path)) is not None]
        for path in self._spool.records():
            record = own_record(path)
            if record is None or record.window is None:
                continue
            why = self.left.get(path.name, "the run directory did not answer")
            record.status, record.trace, record.snapshot = "missing", None, None
            record.reason = f"{NOT_PLACED}; it is in {self._spool.path} ({why})"
            records.append(record)
        return records

    def _take(self, path: Path, last: bool) -> RankRecord | None:
        record = read_record(RankRecord, path)
        if record.window is None:
            raise ValueError("not the record of a window")
        place_in = (record.attempt, record.window, record.rank)
        trace = self._spool.path / Path(record.trace).name if record.trace is not None else None
        placed = self._spool.placed(*place_in)
        if placed.exists():  # a helper that died here had placed and verified everything
            self._remove(path, trace)
            return None
        if trace is not None and not last and not trace.exists():
            return None  # libkineto still writes it
        state = self._reducing.state(record) if self._reducing is not None and trace is not None else "whole"
        if state == "waits":
            return None
        self.placing.folder(self._run_dir.window(record.attempt, record.window))
        self._require_room(trace if state == "whole" else None, record)
        if trace is not None and state == "reduced":
            record.trace_bytes = trace.stat().st_size
            record.trace, record.columns = self._run_dir.trace(*place_in).name, self._reducing_name()
            if self._holding is not None:
                self._holding.hold(trace, record)
            else:
                self._moved(record.trace_bytes)
        elif trace is not None:
            try:
                self._place_trace(trace, self._run_dir.trace(*place_in), record)
            except FileNotFoundError:
                if trace.exists():
                    raise
                record.status, record.trace = "missing", None
                record.reason = "the process ended before libkineto had written the trace"
        if record.snapshot is not None:
            self._place_snapshot(
                self._spool.path / Path(record.snapshot).name, self._run_dir.snapshot(*place_in), record
            )
        self._complete(record)
        record.reason = mask_text(record.reason) if record.reason else record.reason
        record.notes = [mask_text(note) for note in record.notes]
        with contextlib.suppress(RunDirError):  # a record that is there already is more reliable
            self.placing.record(self._run_dir.record(*place_in), to_json(record))
        replace_text(placed, to_json(record))
        self._remove(path, trace)
        return record

    def reduces(self) -> bool:
        """Return whether some announced trace may still be reduced."""
        if self._reducing is None:
            return False
        return any(r.trace is not None and self._reducing.state(r) == "waits" for r in self._announced())

    def _announced(self) -> list[RankRecord]:
        return [record for path in self._spool.records() if (record := own_record(path)) is not None]

    def _reducing_name(self) -> str:
        assert self._reducing is not None
        return self._reducing.object_name

    def _require_room(self, trace: Path | None, record: RankRecord) -> None:
        """Check that all files of a record may be written, before the first is."""
        snapshot = self._spool.path / Path(record.snapshot).name if record.snapshot is not None else None
        sizes = [path.stat().st_size if path is not None and path.exists() else 0 for path in (trace, snapshot)]
        folder = self._run_dir.window(record.attempt, record.window or 0)
        placed = self.placed_bytes() if self._limits.most and sizes[0] else 0
        self._limits.require(folder, sizes[0], placed, beside=sizes[1])

    def placed_bytes(self) -> int:
        """Return the size of the traces and columns that this node has placed, in bytes."""
        own = [r for path in self._spool.placed_records() if (r := own_record(path)) is not None]
        return sum(self.placing.name(path).stat().st_size for path in recordings_of(self._run_dir, own))

    def _place_trace(self, source: Path, target: Path, record: RankRecord) -> None:
        """Write ``target``, and set what was found: size, digest, an incomplete document, no kernels."""
        own_disk = self._spool.path / f"packed_{target.name}"
        with temporary_beside(own_disk if self.placing.sealed else target) as temporary:
            packed = pack(source, temporary, self._moved)
            sha256 = packed.sha256
            if self.placing.sealed:
                self.placing.copy(temporary, target)
            else:
                stored(temporary, sha256)
                try:
                    place(temporary, target)
                except RunDirError:
                    if not _unpacks_to(target, source):
                        raise  # a different trace: both are kept, ours in the spool
                    sha256 = sha256_of(target)
                self.placing.known(target, sha256)
        record.trace, record.sha256 = target.name, sha256
        packed.tell(record)

    def _place_snapshot(self, source: Path, target: Path, record: RankRecord) -> None:
        """Place a snapshot uncompressed, because PyTorch's memory viewer opens plain pickles only."""
        try:
            self.placing.copy(source, target)
        except FileNotFoundError as error:
            record.notes.append(f"no memory snapshot: {error}")
            record.snapshot = None
            return
        record.snapshot = target.name
        source.unlink()

    @staticmethod
    def _remove(path: Path, trace: Path | None) -> None:
        if trace is not None:
            trace.unlink(missing_ok=True)
        path.unlink()


def files_of(run_dir: RunDir, records: Sequence[RankRecord]) -> list[Path]:
    """Return the files that the records say were placed."""
    found = []
    for record in records:
        if record.window is None or (record.trace is None and record.status == "missing"):
            continue
        place_in = (record.attempt, record.window, record.rank)
        found.append(run_dir.record(*place_in))
        found += [run_dir.snapshot(*place_in)] if record.snapshot is not None else []
    return found + sorted(recordings_of(run_dir, records))


def recordings_of(run_dir: RunDir, records: Sequence[RankRecord]) -> set[Path]:
    """Return those of them that are traces and objects of columns; one object holds several ranks."""
    found = set()
    for record in records:
        if record.window is not None and record.trace is not None:
            window = run_dir.window(record.attempt, record.window)
            trace = run_dir.trace(record.attempt, record.window, record.rank)
            found.add(window / "columns" / record.columns if record.columns is not None else trace)
    return found


def own_record(path: Path) -> RankRecord | None:
    """Read the record of a rank of this node; None if it is not one."""
    try:
        return read_record(RankRecord, path)
    except ForeignFileError:
        return None


def _unpacks_to(packed: Path, plain: Path) -> bool:
    try:
        with gzip.open(packed, "rb") as one, plain.open("rb") as other:
            while True:
                a, b = one.read(_BLOCK), other.read(_BLOCK)
                if a != b:
                    return False
                if not a:
                    return True
    except (OSError, EOFError):
        return False


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"
