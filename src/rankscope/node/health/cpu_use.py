"""Use of this host's CPUs by the processes of the job and by others (proc_stat(5), proc_pid_stat(5))."""

from __future__ import annotations

import os
import time
from collections.abc import Set as AbstractSet
from pathlib import Path

from rankscope.node.health.cgroups import lines
from rankscope.procfs import BEGUN, PARENT, SYSTEM, USER, descendants, stat_fields

__all__ = ["CpuUse"]

_SCAN_SHARE = 0.005
"""Largest share of a CPU spent in searching all processes of the host for new ones of the job, at 20 us per process."""


class CpuUse:
    """CPU time of the job's processes and of all processes.

    Args:
        proc: mount point of procfs.
        root: the ancestor of all processes of the job. Those that leave the tree count as others.
    """

    def __init__(self, proc: Path, root: int) -> None:
        self._proc, self._root = proc, root
        self._tick_ms = 1000.0 / os.sysconf("SC_CLK_TCK")
        self._members: set[int] = {root}
        self._seen: dict[int, float] = {}
        self._uncounted: dict[int, float] = {}
        self._read_at = 0.0
        self._scan_due = 0.0

    def machine_ms(self, cpus: AbstractSet[int] | None) -> tuple[float | None, float | None]:
        """Return (busy time, time that a hypervisor gave to other guests) of these CPUs (None: of all) since the host
        was started."""
        busy = stolen = 0.0
        found = False
        for line in lines(self._proc / "stat"):
            name, *fields = line.split()
            if (
                name.startswith("cpu")
                and name[3:].isdigit()
                and (cpus is None or int(name[3:]) in cpus)
                and len(fields) >= 8
            ):
                user, nice, system, _idle, _iowait, irq, soft, steal = (int(f) for f in fields[:8])
                busy += user + nice + system + irq + soft
                stolen += steal
                found = True
        return (busy * self._tick_ms, stolen * self._tick_ms) if found else (None, None)

    def job_ms(self) -> float | None:
        """Return the CPU time of the job's processes, including those that have ended; it never decreases.

        A process that is found late counts from then on. What it used before is not of the time since the last call,
        of which the increase tells: it would hide what other processes used then.
        """
        now = time.monotonic()
        if now >= self._scan_due:
            begun = time.thread_time()  # on a busy machine waiting for a CPU takes longer than the search
            self._scan()
            self._scan_due = now + (time.thread_time() - begun) / _SCAN_SHARE
        for pid in self._members:
            fields = self._fields(pid)
            if fields is not None:
                used = (int(fields[USER]) + int(fields[SYSTEM])) * self._tick_ms
                if pid not in self._seen:
                    self._uncounted[pid] = used if self._began(fields) < self._read_at else 0.0
                self._seen[pid] = used - self._uncounted[pid]
        self._read_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        return sum(self._seen.values()) if self._seen else None

    def _began(self, fields: list[str]) -> float:
        """Return when a process began, in seconds since the host was started."""
        return int(fields[BEGUN]) * self._tick_ms / 1000.0

    def _scan(self) -> None:
        children: dict[int, list[int]] = {}
        for entry in self._proc.iterdir() if self._proc.is_dir() else ():
            if entry.name.isdigit() and (fields := self._fields(int(entry.name))) is not None:
                children.setdefault(int(fields[PARENT]), []).append(int(entry.name))
        self._members = set(descendants(self._root, children))

    def _fields(self, pid: int) -> list[str] | None:
        fields = stat_fields(self._proc / str(pid))
        return fields if len(fields) > BEGUN else None
