"""Processes as procfs shows them (proc_pid_stat(5))."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["descendants", "stat_fields", "text_of"]


def text_of(path: Path) -> str:
    """Return a file's text; empty if its process is gone or belongs to another user."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def stat_fields(folder: Path) -> list[str]:
    """Return the fields of a process or thread after its name, which may contain anything: state, parent, ...

    Args:
        folder: ``/proc/PID`` or ``/proc/PID/task/TID``. If it is gone, there are no fields.
    """
    return text_of(folder / "stat").rpartition(")")[2].split()


def descendants(pid: int, children: Mapping[int, Sequence[int]]) -> list[int]:
    """Return a process and all that descend from it."""
    below, seen = [pid], {pid}
    for process in below:
        fresh = [child for child in children.get(process, ()) if child not in seen]
        seen.update(fresh)
        below += fresh
    return below
