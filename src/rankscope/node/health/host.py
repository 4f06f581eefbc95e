"""What the kernel says of this host: load, memory, pressure, and the CPU quota of the job's cgroup.

The files are those of proc(5), of the kernel's Documentation/accounting/psi.rst and admin-guide/cgroup-v2.rst
(``cpu.max``, ``cpu.stat``), and of its scheduler/sched-bwc.rst for cgroup v1. What is not there is None.
"""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.records.rank import HostSample

__all__ = ["HostReader"]


class HostReader:
    """Reads this process's host. ``proc`` and ``cgroups`` are where these file systems are mounted."""

    def __init__(self, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._group, self._quota = _tightest(_groups(proc, cgroups))

    def read(self, time_ns: int) -> HostSample:
        """One sample."""
        stat = _pairs(self._group / "cpu.stat") if self._group is not None else {}
        held_us = stat.get("throttled_usec")  # v2; v1 has throttled_time, in ns
        held_ns = stat.get("throttled_time") if held_us is None else held_us * 1000
        load = _words(self._proc / "loadavg")
        return HostSample(
            time_ns=time_ns,
            load_1m=float(load[0]) if load else None,
            cpus=self._cpus(),
            quota_periods=stat.get("nr_periods"),
            throttled_periods=stat.get("nr_throttled"),
            throttled_ms=None if held_ns is None else held_ns / 1e6,
            memory_available_bytes=self._available(),
            pressure_cpu_pct=self._pressure("cpu"),
            pressure_memory_pct=self._pressure("memory"),
            pressure_io_pct=self._pressure("io"),
        )

    def _cpus(self) -> float:
        usable = len(os.sched_getaffinity(0))
        return float(usable) if self._quota is None else min(float(usable), self._quota)

    def _available(self) -> int | None:
        for line in _lines(self._proc / "meminfo"):
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return None

    def _pressure(self, resource: str) -> float | None:
        for word in _words(self._proc / "pressure" / resource):
            name, _, value = word.partition("=")
            if name == "avg10":  # the first line is "some"
                return float(value)
        return None


def _groups(proc: Path, mount: Path) -> list[Path]:
    """Folders of the cgroup that governs CPU time and of its ancestors, innermost first, as far as they are visible."""
    for line in sorted(_lines(proc / "self" / "cgroup"), key=lambda entry: entry.startswith("0:")):
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # v1 mounts each controller in a folder of its own; a link named after one controller may be all there is
        tops = [mount / controllers, mount / "cpu"] if controllers else [mount, mount / "unified"]
        for top in tops:
            inner = Path(path.strip("/"))
            found = [top / part for part in (inner, *inner.parents) if (top / part / "cpu.stat").exists()]
            if found:
                return found
    return []


def _tightest(groups: list[Path]) -> tuple[Path | None, float | None]:
    """The cgroup with the smallest quota, and that quota in CPUs; without any, the innermost."""
    quotas = [(quota, group) for group in groups if (quota := _quota(group)) is not None]
    if quotas:
        quota, group = min(quotas, key=lambda pair: pair[0])
        return group, quota
    return (groups[0] if groups else None), None


def _quota(group: Path) -> float | None:
    words = _words(group / "cpu.max") or [
        *_words(group / "cpu.cfs_quota_us"),
        *_words(group / "cpu.cfs_period_us"),
    ]
    if len(words) != 2 or words[0] in {"max", "-1"}:
        return None
    return int(words[0]) / int(words[1])


def _pairs(path: Path) -> dict[str, int]:
    return {key: int(value) for key, value in (line.split() for line in _lines(path))}


def _words(path: Path) -> list[str]:
    lines = _lines(path)
    return lines[0].split() if lines else []


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
