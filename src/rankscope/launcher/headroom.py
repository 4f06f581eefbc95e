"""Resources that the operating system has left for a job, checked before rankscope uses any.

The helper and the threads of the agent count against the same limits as the job's own processes. If little is left, the
job gets all of it, and nothing is recorded.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

__all__ = ["leave_enough"]

_FREE_DESCRIPTORS = 64
"""Least number left to the launcher; torchrun needs some 20, and more with each rank whose output it redirects."""
_FREE_PROCESSES = 64
"""Least number left to the user, or to the container. Rankscope needs seven threads a node and two to six a rank; the
needs of the job are unknown, so this only detects limits that are tight anyway."""
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def leave_enough() -> None:
    """Raise if the job may need what rankscope would use.

    Raises:
        OSError: few file descriptors or processes are left.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    folder = _PROC / "self" / "fd"
    taken = len(list(folder.iterdir())) if folder.is_dir() else 0
    if most != resource.RLIM_INFINITY and most - taken < _FREE_DESCRIPTORS:
        raise OSError(f"only {most - taken} file descriptors are left of the limit of {most} (ulimit -n)")
    for free, most, limit in (_of_the_user(), _of_the_container()):
        if free < _FREE_PROCESSES:
            raise OSError(f"only {max(free, 0):.0f} processes or threads are left of the limit of {most} ({limit})")


def _of_the_user() -> tuple[float, int, str]:
    """Return free and allowed processes by RLIMIT_NPROC, which counts a user's threads and does not apply to the
    superuser."""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most == resource.RLIM_INFINITY or os.getuid() == 0:
        return float("inf"), most, ""
    return most - sum(map(_threads_of_mine, _PROC.glob("[0-9]*"))), most, "ulimit -u"


def _threads_of_mine(process: Path) -> int:
    """Return the number of threads of a process of this user; 0 for another user's, and for one that has ended
    meanwhile."""
    try:
        if process.stat().st_uid != os.getuid():
            return 0
        return len(list((process / "task").iterdir()))
    except OSError:
        return 0


def _of_the_container() -> tuple[float, int, str]:
    """Return the same by the control group (version 2) of this process, or by its nearest ancestor with a limit."""
    try:
        own = (_PROC / "self" / "cgroup").read_text().strip().splitlines()[-1].split(":", 2)[2]
    except (OSError, IndexError):
        return float("inf"), 0, ""
    group = _CGROUPS / own.lstrip("/")
    found: tuple[float, int, str] = float("inf"), 0, ""
    for folder in (group, *group.parents):
        try:
            most, current = (folder / "pids.max").read_text().strip(), int((folder / "pids.current").read_text())
            if most.isdecimal() and int(most) - current < found[0]:
                found = int(most) - current, int(most), f"pids.max of {folder}"
        except (OSError, ValueError):
            pass
        if folder == _CGROUPS:
            break
    return found
