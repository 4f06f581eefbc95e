"""End processes that a test has started, whatever their state; every wait has a limit.

A launcher that is killed leaves its ranks behind, and a rank that stands still keeps the pipes of its launcher open. To
close such a pipe while a thread reads from it would wait for that rank, and no signal ends that wait: so all who hold
a pipe are ended first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

__all__ = ["end", "ending", "holders", "runs", "told"]

Process = TypeVar("Process")
LIMIT_S = 60.0
"""Time limit for processes to end after SIGKILL, seconds. It measures nothing."""


def end(process: Any) -> None:
    """Kill a process and all processes that hold its pipes, read its exit code and close the pipes.

    Args:
        process: a ``subprocess.Popen``, or an object with its interface.

    Raises:
        AssertionError: a killed process still exists after ``LIMIT_S``; the pipes then stay open.
    """
    process.kill()
    deadline = time.monotonic() + LIMIT_S
    while left := holders(_pipes(process)):
        assert time.monotonic() < deadline, f"killed, and still there:\n{told(left)}"
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    process.wait(LIMIT_S)
    for pipe in _pipes(process):
        with contextlib.suppress(OSError):  # buffered output has no reader any more
            pipe.close()


@contextlib.contextmanager
def ending(process: Process) -> Iterator[Process]:
    """Yield a process and end it at the end of the block, so that a failing test does not wait for it."""
    try:
        yield process
    finally:
        end(process)


def holders(pipes: Iterable[IO[Any]]) -> list[int]:
    """Return the ids of other processes that hold an end of one of these pipes."""
    wanted = {str(Path(f"/proc/self/fd/{pipe.fileno()}").readlink()) for pipe in pipes}
    return [] if not wanted else sorted(pid for pid in _others() if wanted & set(_descriptors(pid)))


def runs(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    state = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return bool(state) and state[0] not in "ZX"


def told(pids: Iterable[int]) -> str:
    """Describe processes from outside: command, state, what each thread waits for, and Python stacks.

    The stacks need py-spy on the path and the right to read the processes' memory.
    """
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    lines = []
    for pid in pids:
        command = _read(f"/proc/{pid}/cmdline").replace("\0", " ")
        lines.append(f"process {pid}, child of {_field(pid, 'PPid')}, {_field(pid, 'State')}: {command[:300]}")
        threads = sorted(Path(f"/proc/{pid}/task").glob("*"))
        lines += [f"  thread {t.name} in {_read(t / 'wchan') or '?'} ({_read(t / 'comm').strip()})" for t in threads]
        if spy:
            words = [spy, "dump", "--nonblocking", "--pid", str(pid)]
            with contextlib.suppress(subprocess.TimeoutExpired):
                seen = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
                lines.append(seen.stdout or seen.stderr)
    return "\n".join(lines)


def _pipes(process: Any) -> list[IO[Any]]:
    pipes = (process.stdin if hasattr(process, "stdin") else None, process.stdout, process.stderr)
    return [pipe for pipe in pipes if pipe is not None and not pipe.closed]


def _others() -> Iterator[int]:
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            yield int(place.name)


def _descriptors(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(entry.readlink())


def _field(pid: int, name: str) -> str:
    lines = _read(f"/proc/{pid}/status").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "?")


def _read(path: str | Path) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""
