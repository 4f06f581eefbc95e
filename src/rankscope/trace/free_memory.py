"""Check for remaining memory, because a report that exhausts the memory of a login node does more harm than good."""

from __future__ import annotations

import contextlib
from pathlib import Path

from rankscope.errors import TraceError

__all__ = ["available", "require_memory"]

_RESERVE = 0.05
"""Share of the machine's memory, or of the limit of this process's cgroup, that is left to other programs. Linux begins
to kill processes, or to swap, slightly below that."""
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def require_memory(path: Path | str) -> None:
    """Return if memory is left.

    Raises:
        TraceError: less than a twentieth of the memory that this process could use is available; the message names
            ``path``.
    """
    for whose, free, whole in available():
        if free < _RESERVE * whole:
            raise TraceError(
                f"{path}: too large for the memory there is: {free >> 20} of {whole >> 20} MiB of {whose} are left, "
                "and a twentieth is kept; analyse fewer files at a time, or on a larger machine"
            )


def available() -> list[tuple[str, int, int]]:
    """Return (owner, available bytes, total bytes) of the machine's memory and that of the cgroup (version 2). Those
    that the system does not report are left out."""
    found = []
    with contextlib.suppress(OSError, KeyError, ValueError):
        numbers = _numbers(_MEMINFO)
        found.append(("this machine", numbers["MemAvailable:"] << 10, numbers["MemTotal:"] << 10))
    with contextlib.suppress(OSError, KeyError, ValueError, StopIteration):
        lines = _OWN_CGROUP.read_text().splitlines()
        own = next(line[3:] for line in lines if line.startswith("0::"))
        folder = _CGROUP / own.strip("/")
        most = int((folder / "memory.max").read_text())  # "max": no limit
        # The page cache is freed when memory is needed.
        used = int((folder / "memory.current").read_text()) - _numbers(folder / "memory.stat")["inactive_file"]
        found.append(("its cgroup", max(most - used, 0), most))
    return found


def _numbers(path: Path) -> dict[str, int]:
    return {words[0]: int(words[1]) for line in path.read_text().splitlines() if len(words := line.split()) > 1}
