"""Add to the step log of a rank when each step issued its collectives, which the rank determines some steps later."""

from __future__ import annotations

import struct
from pathlib import Path

from rankscope.errors import ForeignFileError
from rankscope.records.running.step_log import CALL_TIMES_ENTRY, STEP_LOG_COLUMNS, STEP_LOG_ENTRY
from rankscope.rundir.foreign import open_foreign

__all__ = ["CallTimesToAdd"]

_MOST_BYTES = 1 << 20
_ISSUED_AT = 4 * STEP_LOG_COLUMNS.index("issued")
_ISSUED = struct.Struct("<I")
_CALLS_AT = STEP_LOG_ENTRY.size - struct.calcsize("<HHQ")
_CALLS = struct.Struct("<HH")


class CallTimesToAdd:
    """The call times that one rank has written, and those that are not in the log yet.

    Args:
        path: the file that the rank replaces; see :data:`~rankscope.records.running.step_log.CALL_TIMES_ENTRY`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._waiting: list[tuple[int, int, int, int]] = []

    def add_to(self, log: Path, steps: int, exact: int, size: int) -> None:
        """Fill in the entries of a log.

        Args:
            log: file of the step log.
            steps: number of steps that it covers.
            exact: offset in bytes from which each step has an entry of its own.
            size: size of the file in bytes.

        Raises:
            OSError: a file cannot be read or written.
        """
        self._look()
        if not self._waiting or self._waiting[0][0] >= steps:
            return
        ready = [entry for entry in self._waiting if entry[0] < steps]
        self._waiting = self._waiting[len(ready) :]
        with log.open("r+b") as stream:
            for number, issued, calls, device in ready:
                at = size - (steps - number) * STEP_LOG_ENTRY.size
                if at >= exact:
                    stream.seek(at + _ISSUED_AT)
                    stream.write(_ISSUED.pack(issued))
                    stream.seek(at + _CALLS_AT)
                    stream.write(_CALLS.pack(calls, device))

    def _look(self) -> None:
        """Read what the rank has written since the last time."""
        try:
            state = self._path.stat()
            if self._seen == (state.st_ino, state.st_mtime_ns):
                return
            with open_foreign(self._path, _MOST_BYTES) as stream:
                raw = stream.read(_MOST_BYTES)
        except (FileNotFoundError, ForeignFileError):
            return
        self._seen = state.st_ino, state.st_mtime_ns
        whole = len(raw) // CALL_TIMES_ENTRY.size * CALL_TIMES_ENTRY.size
        self._waiting = sorted({*self._waiting, *CALL_TIMES_ENTRY.iter_unpack(raw[:whole])})
