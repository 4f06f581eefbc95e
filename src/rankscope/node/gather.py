"""From the spool of a node to the run directory: compress, check, place. Can be repeated; takes each record once."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from rankscope.errors import RunDirError
from rankscope.records.codec import from_json, to_json
from rankscope.records.rank import RankRecord
from rankscope.rundir.files import place, temporary_beside, write_new
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool

__all__ = ["gather_out_of_memory", "gather_ready", "read_lives"]

_BLOCK = 1 << 20
_KERNEL_MARKS = (b'"cat": "kernel"', b'"cat":"kernel"')
_LEVEL = 1
"""zlib level 1: 11 times smaller at 195 MB/s; level 9, what torch.profiler itself would use, reaches 24 MB/s."""


def gather_ready(
    spool: Spool, run_dir: RunDir, *, last: bool = True, complete: Callable[[RankRecord], None] = lambda _: None
) -> list[RankRecord]:
    """Take every window record that ranks have announced, with its trace, and place both in the run directory.

    Args:
        spool: of this node.
        run_dir: of the run.
        last: the job has ended; a trace that libkineto has not finished by now never will be.
        complete: adds to each record what this process knows.

    Returns:
        The records as placed, with size, digest and status filled in.

    Raises:
        OSError: the run directory cannot be written; nothing is lost, the spool still holds it.
    """
    return [record for path in spool.records() if (record := _take(path, spool, run_dir, last, complete)) is not None]


def gather_out_of_memory(spool: Spool, run_dir: RunDir) -> None:
    """Place the snapshots that ranks took when the allocator gave up.

    Raises:
        OSError: the run directory cannot be written.
    """
    for path in spool.out_of_memories():
        attempt, rank = path.stem.split("_")[2:]
        target = run_dir.out_of_memory(int(attempt), int(rank))
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(target) as temporary, contextlib.suppress(RunDirError):
            shutil.copyfile(path, temporary)
            place(temporary, target)


def read_lives(spool: Spool) -> list[RankRecord]:
    """What every rank of this node said of its whole life."""
    return [r for path in spool.lives() if (r := _read(path)) is not None]


def _take(
    path: Path, spool: Spool, run_dir: RunDir, last: bool, complete: Callable[[RankRecord], None]
) -> RankRecord | None:
    record = _read(path)
    if record is None or record.window is None:
        return None
    trace = spool.path / record.trace if record.trace is not None else None
    if trace is not None and not last and not trace.exists():
        return None  # libkineto still writes it
    place_in = (record.attempt, record.window, record.rank)
    run_dir.window(record.attempt, record.window).mkdir(parents=True, exist_ok=True)
    if trace is not None:
        target = run_dir.trace(*place_in)
        try:
            _compress(trace, target, record)
            record.trace = target.name
        except FileNotFoundError:
            record.status, record.trace = "missing", None
            record.reason = "the process ended before libkineto had written the trace"
        except RunDirError as error:
            record.status, record.reason, record.trace = "corrupt", str(error), None
    if record.snapshot is not None:
        _place_snapshot(spool.path / record.snapshot, run_dir.snapshot(*place_in), record)
    complete(record)
    with contextlib.suppress(RunDirError):  # a record that is there already is the better witness
        write_new(run_dir.record(*place_in), to_json(record))
    if trace is not None:
        trace.unlink(missing_ok=True)
    path.unlink()
    return record


def _place_snapshot(source: Path, target: Path, record: RankRecord) -> None:
    """Copied as it is: PyTorch's memory viewer opens plain pickles only."""
    try:
        with temporary_beside(target) as temporary:
            shutil.copyfile(source, temporary)
            place(temporary, target)
    except (OSError, RunDirError) as error:
        record.notes.append(f"no memory snapshot: {error}")
        record.snapshot = None
        return
    record.snapshot = target.name
    source.unlink()


def _read(path: Path) -> RankRecord | None:
    try:
        return from_json(RankRecord, path.read_bytes())
    except ValueError:
        return None


def _compress(source: Path, target: Path, record: RankRecord) -> None:
    """Write ``target`` and fill in what was seen on the way: size, digest, an incomplete document, missing kernels."""
    digest, size, kernels, tail = hashlib.sha256(), 0, False, b""
    with temporary_beside(target) as temporary:
        with source.open("rb") as stream, temporary.open("wb") as raw, _gzip_into(_Tee(raw, digest.update)) as packed:
            while block := stream.read(_BLOCK):
                seen = tail + block
                kernels = kernels or any(mark in seen for mark in _KERNEL_MARKS)
                tail = seen[-64:]
                size += len(block)
                packed.write(block)
        place(temporary, target)
    record.trace_bytes, record.sha256 = size, digest.hexdigest()
    if not tail.rstrip().endswith((b"}", b"]")):
        record.status, record.reason = "corrupt", f"the trace ends in the middle of its JSON, after {size} bytes"
    elif record.cuda_used and not kernels:
        record.status = "partial" if record.status == "ok" else record.status
        record.notes.append(
            "the job used a GPU but the trace holds no kernel: another tool (nsys, DCGM) may hold CUPTI"
        )


class _Tee:
    """A file that also hands every block to a digest."""

    def __init__(self, raw: IO[bytes], update: Callable[[bytes], None]) -> None:
        self._raw = raw
        self._update = update

    def write(self, block: bytes) -> int:
        self._update(block)
        return self._raw.write(block)

    def flush(self) -> None:
        self._raw.flush()


def _gzip_into(sink: _Tee) -> Any:
    return gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=sink, mtime=0)
