"""Run one command after the other on this machine, and stop when this process is stopped.

Each command has a session of its own, so that Ctrl-C reaches this process only and is passed on once: the run ends as
under ``rankscope run``, and keeps what it has recorded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from rankscope.launcher.exec.command import die_with_parent

__all__ = ["Stop", "run_command"]

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """The signal that has stopped this process, and the process that it is passed on to."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.child: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[Stop]:
        """Within this context, note signals that stop a process and pass them on."""
        before = {}
        for number in _STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                before[number] = signal.signal(number, self._came)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _came(self, number: int, _frame: FrameType | None) -> None:
        self.signal = number
        child = self.child
        if child is not None and child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)


def run_command(words: Sequence[str], log: Path, stop: Stop, environ: Mapping[str, str] | None = None) -> int:
    """Run a command to its end; its output goes to a file.

    Returns:
        Its exit code; 128 plus the signal's number if a signal ended it.

    Raises:
        OSError: it cannot be started.
    """
    parent = os.getpid()
    with log.open("ab") as output:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environ,
            # A sweep that was killed leaves no run behind, which would slow down later runs.
            preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),  # noqa: PLW1509 - no thread of ours runs
        )
        stop.child = child
        if stop.signal is not None:  # it arrived while the child was being started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, stop.signal)
        code = child.wait()
        stop.child = None
    return 128 - code if code < 0 else code
