"""Whether ranks of this node still run, after their launcher was killed and cannot report it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

from rankscope.node.gathering.gather import own_record
from rankscope.procfs import running_since
from rankscope.rundir.spool import Spool

__all__ = ["LiveRanks"]

_BEGINS_WITHIN_S = 30.0
"""Time from the start of a rank to its first record, since it has to import torch first."""


class LiveRanks:
    """Knows the training processes by the records that they leave at their start, or that were left for them.

    A process id can be reused, so the start time of the process is kept with it.

    Args:
        spool: of this node.
        proc: mount point of procfs.
        clock: in seconds, monotonic.
        joined_only: count only processes that were registered, for as long as they are.
    """

    def __init__(
        self,
        spool: Spool,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
        *,
        joined_only: bool = False,
    ) -> None:
        self._joined_only = joined_only
        self._spool = spool
        self._proc = proc
        self._begun: dict[int, str | None] = {}
        self._seen: dict[Path, int] = {}
        self._wait_until: float | None = None
        self._clock = clock

    def look(self) -> None:
        """Note the ranks that have started since the last call."""
        if self._joined_only:
            begun: dict[int, str | None] = dict.fromkeys(self._begun)
            for path in self._spool.joined_ones():
                with contextlib.suppress(OSError):  # it has just been removed
                    begun[int(path.name.rpartition("_")[2])] = path.read_text(encoding="utf-8")
            self._begun = begun
            return
        for path in self._spool.process_records():
            try:
                changed = path.stat().st_mtime_ns
            except OSError:
                continue
            if self._seen.get(path) == changed:
                continue
            self._seen[path] = changed
            process = own_record(path)
            if process is not None and process.host == socket.gethostname() and process.pid not in self._begun:
                self._begun[process.pid] = running_since(self._proc / str(process.pid))

    def alive(self) -> bool:
        """Return whether a rank runs, or may still start."""
        if not self._begun:
            if self._wait_until is None:
                self._wait_until = self._clock() + _BEGINS_WITHIN_S
            return self._clock() < self._wait_until
        return any(
            begun is not None and running_since(self._proc / str(pid)) == begun for pid, begun in self._begun.items()
        )
