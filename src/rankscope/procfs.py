"""Processes as procfs shows them (proc_pid_stat(5)). Ranks import this as well, so it imports nothing."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["BEGUN", "PARENT", "STATE", "SYSTEM", "USER", "descendants", "read_stat", "running_since", "stat_fields",
           "text_of"]  # fmt: skip

STATE, PARENT, USER, SYSTEM, BEGUN = 0, 1, 11, 12, 19
"""Places in what :func:`read_stat` returns. Times are clock ticks; ``BEGUN`` counts from the start of the system."""


def text_of(path: Path) -> str:
    """Return a file's text; empty if its process is gone or belongs to another user."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_stat(folder: Path) -> list[str]:
    """Return the fields of a process or thread after its name, which may contain anything: state, parent, ...

    Args:
        folder: ``/proc/PID`` or ``/proc/PID/task/TID``.

    Raises:
        OSError: it is gone, or this system has no procfs.
    """
    return (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def stat_fields(folder: Path) -> list[str]:
    """Return what :func:`read_stat` does, and no fields if the process is gone."""
    try:
        return read_stat(folder)
    except OSError:
        return []


def running_since(folder: Path) -> str | None:
    """Return when a process began, which with its id identifies it; None if it is gone or a zombie."""
    fields = stat_fields(folder)
    return None if len(fields) <= BEGUN or fields[STATE] in "ZX" else fields[BEGUN]


def descendants(pid: int, children: Mapping[int, Sequence[int]]) -> list[int]:
    """Return a process and all that descend from it."""
    below, seen = [pid], {pid}
    for process in below:
        fresh = [child for child in children.get(process, ()) if child not in seen]
        seen.update(fresh)
        below += fresh
    return below
