"""Processes that a command has left running, as a script does that starts its job in the background.

``rankscope exec`` ends with its command, as its caller expects, and what is recorded is gathered then.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rankscope.rundir.spool import ENV_SPEC, Spool

__all__ = ["left_running"]


def left_running(spool: Spool, proc: Path = Path("/proc")) -> str | None:
    """Return a message if ranks still run, or if no rank has made a step and other processes of the job still run.

    Helpers of frameworks often outlive a job for a moment, so they are not mentioned after ranks.

    Args:
        spool: of this node.
        proc: mount point of procfs.
    """
    owners = [owner for path in spool.path.glob("owner_*_*") if (owner := _pid(path)) is not None]
    mark = f"{ENV_SPEC}={spool.spec}".encode()
    running = []
    for environ in proc.glob("[0-9]*/environ"):
        pid = int(environ.parent.name)
        if (owners and pid not in owners) or pid == os.getpid():
            continue
        with contextlib.suppress(OSError):  # another user's, or one that has just ended
            if mark in environ.read_bytes().split(b"\0"):
                running.append(pid)
    if not running:
        return None
    which = "its ranks" if owners else "processes that it has started"
    return (
        f"the command has ended, and {which} still run (process {min(running)}): what they do from now on is not "
        "recorded. In a script that starts its job in the background, put `rankscope exec` before the launcher"
    )


def _pid(owner: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(owner.read_text(encoding="ascii").split()[0])
    return None
