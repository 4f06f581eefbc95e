"""The launcher's side of the node helper: start it, restart it when it ends early, and read its messages.

This module does not use the run directory. The helper may wait for a store; waiting for the helper has a limit.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque

from rankscope import own_process
from rankscope.records.codec import from_json, to_json
from rankscope.records.running.node_task import HelperMessage, JobEnd
from rankscope.rundir.spool import Spool

__all__ = ["HelperLost", "NodeHelper"]

_LOOKS_EVERY_S = 1.0
_LONGEST_PAUSE_S = 60.0
_LATE_STARTS = 3
"""How often a helper is restarted once the job has ended. If it always fails, its successors fail too."""


class HelperLost(Exception):  # noqa: N818 - its message is told, the exit code of the job stays
    """The helper ended early repeatedly, or no process could be started any more."""


class NodeHelper:
    """The current helper process of this node.

    Args:
        spool: with the task and the spec in it.
        kept: another process, instead of the launcher, restarts the helper.
    """

    def __init__(self, spool: Spool, *, kept: bool = False) -> None:
        self._spool = spool
        self._arguments = ("--kept",) if kept else ()
        self._environ = own_process.environment()  # before the variables for the ranks are added
        self._lock = threading.Lock()
        self._no_more = threading.Event()
        self._rest = b""
        self._messages: deque[HelperMessage] = deque()
        self._end: JobEnd | None = None
        self._late_starts = 0
        self._process = self._start()

    @property
    def pid(self) -> int:
        """Process id of the helper."""
        return self._process.pid

    def claimed(self, patience_s: float, store_s: float) -> HelperMessage | None:
        """Wait for the answer of the run directory.

        Args:
            patience_s: longest time in all, since starting a process takes time on a busy machine.
            store_s: longest time once the helper has sent its request.

        Returns:
            The answer; None if there is none in time.
        """
        deadline = time.monotonic() + patience_s
        while (left_s := deadline - time.monotonic()) > 0:
            message = self._hear(left_s)
            if message is not None and message.kind in ("claimed", "refused"):
                return message
            if message is not None and message.kind == "alive":
                deadline = min(deadline, time.monotonic() + store_s)
            if message is None and self._process.poll() is not None:
                return None  # it has ended; the watch starts another
        return None

    def watch(self) -> None:
        """Restart a helper that ends, at growing intervals, from now on until :meth:`finish`."""
        with contextlib.suppress(RuntimeError):  # no thread can be started: it is restarted at the end
            threading.Thread(target=self._watch, name="rankscope-helper", daemon=True).start()

    def finish(self, end: JobEnd) -> None:
        """Tell the helper that the job has ended; its further actions are reported by :meth:`next_message`."""
        self._no_more.set()
        with self._lock:
            self._end = end
            self._send_end()

    def let_go(self) -> None:
        """Close the connection without an end of the job: the helper itself notices when the last process has
        exited."""
        self._no_more.set()
        with self._lock, contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def next_message(self, patience_s: float) -> HelperMessage | None:
        """Return the next message, or None if there is none within ``patience_s`` seconds.

        A helper that died is restarted.

        Raises:
            HelperLost: it cannot be restarted.
        """
        message = self._hear(patience_s)
        if message is None and self._process.poll() is not None and not self._messages:
            with self._lock:
                if self._late_starts == _LATE_STARTS:
                    raise HelperLost(f"the node helper ended {_LATE_STARTS + 1} times: {self._last_messages()}")
                self._late_starts += 1
                try:
                    self._replace()
                except OSError as error:
                    raise HelperLost(f"the node helper ended and no other could be started: {error}") from error
                self._send_end()
        return message

    def end(self) -> None:
        """End the helper and its child processes. One that hangs in a store ends when the store answers."""
        self._no_more.set()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._spool.helper_log.open("ab") as log:
            process = subprocess.Popen(
                own_process.command("rankscope.node", str(self._spool.path), *self._arguments),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=self._environ, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def _replace(self) -> None:
        """Start another helper to replace one that died. The lock is held."""
        old, self._process = self._process, self._start()
        for pipe in (old.stdin, old.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._rest = b""

    def _watch(self) -> None:
        pause_s = _LOOKS_EVERY_S
        while not self._no_more.wait(pause_s):
            with self._lock:
                if self._no_more.is_set() or self._process.poll() is None:
                    continue
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                with contextlib.suppress(OSError):  # no process or no memory now; possibly later
                    self._replace()

    def _send_end(self) -> None:
        if self._end is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(to_json(self._end, indent=None).encode() + b"\n")
                self._process.stdin.close()

    def _hear(self, patience_s: float) -> HelperMessage | None:
        if self._messages:
            return self._messages.popleft()
        with self._lock:
            pipe = self._process.stdout
            if pipe is None:
                return None
            ready, _, _ = select.select([pipe], [], [], max(0.0, patience_s))
            if not ready:
                return None
            part = b""
            with contextlib.suppress(BlockingIOError):
                part = os.read(pipe.fileno(), 1 << 16)
            if not part:  # end-of-file: the process is exiting
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(min(1.0, max(0.0, patience_s)))
                return None
            *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self._messages.append(from_json(HelperMessage, line))
        return self._messages.popleft() if self._messages else None

    def _last_messages(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._spool.helper_log.read_text(errors="replace")[-4096:].strip().splitlines()
            if lines:
                return lines[-1]
        return f"exit code {self._process.poll()}"
