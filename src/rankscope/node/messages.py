"""The helper's side of the pipe to its launcher. Messages are lines of JSON; a launcher that has ended is not an
error."""

from __future__ import annotations

import os
import select
import threading
import time

from rankscope.records.codec import to_json
from rankscope.records.running.node_task import HelperMessage

__all__ = ["Messages"]

_PATIENCE_S = 10.0
"""Time limit for a launcher that does not read: it may be stopped (SIGSTOP), while the helper has other work."""


class Messages:
    """Writes messages from any thread.

    Args:
        descriptor: of the pipe; None if no launcher reads.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        if descriptor is not None:
            os.set_blocking(descriptor, False)

    def send(self, message: HelperMessage, *, patience_s: float = _PATIENCE_S) -> None:
        """Write one line. If it cannot be written in time, it and all later ones are dropped."""
        line = to_json(message, indent=None).encode() + b"\n"
        deadline = time.monotonic() + patience_s
        with self._lock:
            while line and self._descriptor is not None:
                written = self._write(self._descriptor, line)
                if written is None or (written == 0 and time.monotonic() > deadline):
                    self._descriptor = None  # half a line may have been written, so nothing may follow it
                else:
                    line = line[written:]

    @staticmethod
    def _write(descriptor: int, line: bytes) -> int | None:
        try:
            return os.write(descriptor, line)
        except BlockingIOError:
            select.select([], [descriptor], [], 0.5)
            return 0
        except OSError:  # the launcher has ended
            return None
