"""What procfs shows of the processes of ranks: state, CPU time, and what their main threads wait for in the kernel."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from rankscope.procfs import PARENT, STATE, SYSTEM, USER, descendants, stat_fields, text_of

__all__ = ["cpu_beside_main_thread", "main_thread_cpu", "process_state", "times_switched_out", "waits_in_kernel"]

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_MOST_CHARACTERS = 64


def process_state(proc: Path, pid: int) -> str:
    """Return the kernel's letter for the main thread; empty if the process is gone."""
    words = stat_fields(proc / str(pid) / "task" / str(pid))
    return words[STATE] if words else ""


def main_thread_cpu(proc: Path, pid: int) -> float:
    """Return the time in which the main thread ran, or was ready to run on a busy machine, in seconds."""
    task = proc / str(pid) / "task" / str(pid)
    return _seconds(stat_fields(task), USER, SYSTEM) + _ready_s(task)


def times_switched_out(proc: Path, pid: int) -> int:
    """Return how often the main thread was switched out because it waited."""
    for line in text_of(proc / str(pid) / "task" / str(pid) / "status").splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0


def waits_in_kernel(proc: Path, pid: int) -> str:
    """Return the function of the kernel in which the main thread waits; empty if it does not, or may not be known."""
    found = text_of(proc / str(pid) / "task" / str(pid) / "wchan").strip()
    return "" if found == "0" else found[:_MOST_CHARACTERS]


def cpu_beside_main_thread(proc: Path, pids: Iterable[int]) -> dict[int, float]:
    """Return the same for the other threads of each process together, and for all processes that it has started.

    Processes that have ended count as well, once they were waited for.
    """
    used: dict[int, float] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for folder in proc.glob("[0-9]*"):
        words = stat_fields(folder)
        if len(words) > 14:
            children[int(words[PARENT])].append(int(folder.name))
            used[int(folder.name)] = _seconds(words, 11, 12, 13, 14)
    found = {}
    for pid in pids:
        tree = descendants(pid, children)
        ready = sum(_ready_s(task) for process in tree for task in (proc / str(process) / "task").glob("[0-9]*"))
        spent = sum(used.get(process, 0.0) for process in tree)
        found[pid] = max(spent + ready - main_thread_cpu(proc, pid), 0.0)
    return found


def _ready_s(task: Path) -> float:
    """Return how long a thread was ready to run and did not run, in seconds; 0 where the kernel does not count it."""
    words = text_of(task / "schedstat").split()
    return int(words[1]) / 1e9 if len(words) > 1 else 0.0


def _seconds(words: list[str], *fields: int) -> float:
    return sum(int(words[field]) for field in fields) / _TICKS if len(words) > max(fields) else 0.0
