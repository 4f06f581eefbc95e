"""Memory snapshots are read in a separate process, whose memory and time are limited.

A pickle is a program. While it is loaded, it is checked that it names no class. But a few bytes of it can request a
table of gigabytes, or a comparison that takes years, which cannot be detected beforehand. The process that loads it is
then ended, and the report says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.analysis.memory.snapshot import Bounds, load_snapshot, memory_row
from rankscope.errors import ForeignFileError, TraceError
from rankscope.records.codec import from_json, to_json
from rankscope.records.rows import MemoryRow
from rankscope.rundir.foreign import open_foreign, shown

__all__ = ["MAX_BYTES", "load_limited", "read_rows"]

MAX_BYTES = 1 << 30
"""Largest size of a snapshot, in bytes; the agent's are limited to a quarter of it."""
_SPARE_BYTES = 256 << 20
_BYTES_PER_BYTE = 24
"""Memory per byte of the pickle for the history as Python objects; 8 to 15 bytes were measured."""
_SPARE_S = 5.0
_BYTES_PER_S = 2e6
"""Bytes read and analysed per second of CPU time, used as a lower bound; ten times as many were measured."""
_TOO_MUCH = "not read: it takes more memory or time than a snapshot of its size does; remove it"
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rankscope.analysis.memory.process import answer; answer()"
)


def read_rows(paths: Sequence[Path], steps: Bounds) -> Iterator[MemoryRow | str]:
    """Yield for each snapshot its row, or a description of what is wrong with it.

    Args:
        paths: the snapshots.
        steps: begin and end of each step, by (attempt, window, rank), where known.
    """
    waiting = list(paths)
    known = [[*place, a.tolist(), b.tolist()] for place, (a, b) in steps.items()] if waiting else []
    while waiting:
        count = 0
        try:
            for answered in _ask(waiting, known):
                yield answered
                count += 1
        except OSError as error:
            yield from (f"{shown(path.name)}: no process to read it in ({error.strerror})" for path in waiting[count:])
            return
        if count < len(waiting):
            path = waiting[count]
            yield f"{shown(path.name)}: {_TOO_MUCH}"
            count += 1
        waiting = waiting[count:]


def _ask(paths: Sequence[Path], known: list[Any]) -> Iterator[MemoryRow | str]:
    """Yield the results of one process, in order. It may end before all snapshots are read."""
    command = [sys.executable, "-I", "-c", _START, json.dumps(_roots())]
    question = json.dumps({"steps": known, "paths": [os.fsencode(path.absolute()).hex() for path in paths]})
    with subprocess.Popen(  # not in a folder of the job; the search path is an argument
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(question.encode())
            process.stdin.close()
            for path, line in zip(paths, process.stdout, strict=False):
                if not line.endswith(b"\n"):
                    return
                fault = json.loads(line)["fault"] if line.startswith(b'{"fault"') else None
                try:
                    yield f"{shown(path.name)}: {fault}" if fault is not None else from_json(MemoryRow, line)
                except ValueError as error:
                    yield f"{shown(path.name)}: {error}"
        except BrokenPipeError:
            return
        finally:
            process.kill()


def _roots() -> list[str]:
    """Return the module search path, without the current folder, whose files do not belong to rankscope."""
    here = {"", os.curdir}
    with contextlib.suppress(OSError):  # the folder was removed
        here.add(str(Path.cwd()))
    own = str(Path(__file__).absolute().parents[3])
    return [*(entry for entry in sys.path if entry not in here and Path(entry).is_absolute()), own]


def answer() -> None:
    """Read snapshots, in a process of its own. Writes a line for each to standard output, a row or ``{"fault":
    ...}``."""
    request = json.loads(sys.stdin.buffer.read())
    steps: Bounds = {
        (attempt, window, rank): (np.array(starts, np.int64), np.array(ends, np.int64))
        for attempt, window, rank, starts, ends in request["steps"]
    }
    for hexadecimal in request["paths"]:
        path = Path(os.fsdecode(bytes.fromhex(hexadecimal)))
        try:
            text = to_json(memory_row(load_limited(path), shown(path.name), steps), indent=None)
        except (TraceError, ForeignFileError) as error:
            text = json.dumps({"fault": str(error)[:1000]})
        except MemoryError:
            text = json.dumps({"fault": _TOO_MUCH})
        except Exception as error:  # a corrupt snapshot can cause any error
            text = json.dumps({"fault": f"not the format of a memory snapshot ({type(error).__name__})"})
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def load_limited(path: Path) -> dict[str, Any]:
    """Read a snapshot within limits of memory and time that follow from its size; beyond them this process ends."""
    with open_foreign(path, MAX_BYTES) as stream:
        size = os.fstat(stream.fileno()).st_size
        with contextlib.suppress(OSError):  # without /proc, memory is not limited
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            most = used + _SPARE_BYTES + _BYTES_PER_BYTE * size
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
        signal.setitimer(signal.ITIMER_PROF, _SPARE_S + size / _BYTES_PER_S)
        return load_snapshot(stream)
