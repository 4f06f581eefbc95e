"""Python stacks of ranks that do not answer, read from outside by py-spy where it is installed and permitted.

A rank that is stopped, that holds the GIL in native code, or that has no second thread yet cannot answer a question.
py-spy reads its memory; with ``--nonblocking`` it does not stop the process or change anything in it. It needs the
permission to trace the process (ptrace(2)); without it there are no stacks, and this is not reported.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from rankscope.records.running.hang import ThreadStack

__all__ = ["OutsideStacks"]

WITHIN_S = 5.0
"""Longest time for one process, in seconds."""
_MOST_RANKS = 8
_MOST_BYTES = 1 << 20
_MOST_THREADS, _MOST_FRAMES = 64, 60


class OutsideStacks:
    """Starts one py-spy per process, and collects the output without waiting.

    Args:
        folder: for its output, on the node's own disk.
        command: of py-spy, empty for none; None: as found on the path, or beside this Python.
        clock: seconds, monotonic.
    """

    def __init__(
        self, folder: Path, command: Sequence[str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._command = command
        self._clock = clock
        self._running: dict[int, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        self._deadline = 0.0
        self.found: dict[int, list[ThreadStack]] = {}
        """Stacks by process id."""

    def look_at(self, pids: Sequence[int]) -> None:
        """Start to read the stacks of these processes. Raises nothing."""
        self._drop()
        self.found, self._deadline = {}, self._clock() + WITHIN_S
        command = _installed() if self._command is None else self._command
        if not pids or not command:
            return
        for pid in pids[:_MOST_RANKS]:
            with contextlib.suppress(OSError):
                output = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - it lives as long as the process
                try:
                    started = subprocess.Popen(
                        [*command, "dump", "--nonblocking", "--json", "--pid", str(pid)],
                        stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL,
                    )  # fmt: skip
                except OSError:
                    output.close()
                    raise
                self._running[pid] = started, output

    def done(self) -> bool:
        """Return whether all results are in :attr:`found`. Raises nothing."""
        for pid, (process, output) in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[pid]
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
                output.seek(0)
                self.found[pid] = _stacks(json.loads(output.read(_MOST_BYTES)), pid)
            output.close()
        if self._running and self._clock() < self._deadline:
            return False
        self._drop()
        return True

    def _drop(self) -> None:
        for process, output in self._running.values():
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait(1)
            output.close()
        self._running = {}


def _installed() -> list[str]:
    beside = Path(sys.executable).with_name("py-spy")
    found = shutil.which("py-spy") or (str(beside) if beside.exists() else None)
    return [found] if found else []


def _stacks(threads: list[dict[str, Any]], pid: int) -> list[ThreadStack]:
    """Parse the output of ``py-spy dump --json``, which has the innermost frames first."""
    found = [
        ThreadStack(
            name=str(thread.get("thread_name") or thread.get("os_thread_id") or "")[:80],
            training=thread.get("os_thread_id") == pid,
            frames=[_frame(frame) for frame in thread["frames"][:_MOST_FRAMES]][::-1],
        )
        for thread in threads[:_MOST_THREADS]
    ]
    return sorted(found, key=lambda stack: not stack.training)


def _frame(frame: dict[str, Any]) -> str:
    return f"{str(frame.get('filename', ''))[-200:]}:{int(frame.get('line') or 0)} in {str(frame.get('name', ''))[:80]}"
