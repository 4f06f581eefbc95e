"""What procfs shows of the processes of ranks: state, CPU time, and what their main threads wait for in the kernel."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["cpu_of_others", "main_thread_cpu", "process_state", "times_switched_out", "waits_in_kernel"]

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_MOST_CHARACTERS = 64


def process_state(proc: Path, pid: int) -> str:
    """Return the kernel's letter for the main thread; empty if the process is gone."""
    words = _stat(proc / str(pid) / "task" / str(pid) / "stat")
    return words[0] if words else ""


def main_thread_cpu(proc: Path, pid: int) -> float:
    """Return the CPU time of the main thread, in seconds."""
    return _seconds(_stat(proc / str(pid) / "task" / str(pid) / "stat"), 11, 12)


def times_switched_out(proc: Path, pid: int) -> int:
    """Return how often the main thread was switched out because it waited."""
    for line in _text(proc / str(pid) / "task" / str(pid) / "status").splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0


def waits_in_kernel(proc: Path, pid: int) -> str:
    """Return the function of the kernel in which the main thread waits; empty if it does not, or may not be known."""
    found = _text(proc / str(pid) / "task" / str(pid) / "wchan").strip()
    return "" if found == "0" else found[:_MOST_CHARACTERS]


def cpu_of_others(proc: Path, pids: Iterable[int]) -> dict[int, float]:
    """Return for each process the CPU time of its other threads and of all processes that it has started, in seconds.

    Processes that have ended count as well, once they were waited for.
    """
    used: dict[int, float] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for folder in proc.glob("[0-9]*"):
        words = _stat(folder / "stat")
        if len(words) > 14:
            children[int(words[1])].append(int(folder.name))
            used[int(folder.name)] = _seconds(words, 11, 12, 13, 14)
    return {pid: max(_of_tree(pid, children, used) - main_thread_cpu(proc, pid), 0.0) for pid in pids}


def _of_tree(pid: int, children: Mapping[int, list[int]], used: Mapping[int, float]) -> float:
    below, seen = [pid], {pid}
    for process in below:
        fresh = [child for child in children.get(process, []) if child not in seen]
        seen.update(fresh)
        below += fresh
    return sum(used.get(process, 0.0) for process in below)


def _seconds(words: list[str], *fields: int) -> float:
    return sum(int(words[field]) for field in fields) / _TICKS if len(words) > max(fields) else 0.0


def _stat(path: Path) -> list[str]:
    """Return the fields after the name, which may contain anything."""
    return _text(path).rpartition(")")[2].split()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
