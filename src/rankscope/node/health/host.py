"""State of this host from its kernel: load, memory, pressure, users of its CPUs, and the CPU quota of the job's cgroup.

The files are those of proc(5), of the kernel's Documentation/accounting/psi.rst and admin-guide/cgroup-v2.rst
(``cpu.max``, ``cpu.stat``), and of its scheduler/sched-bwc.rst for cgroup v1. Values that do not exist are None.
"""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.node.health.cgroups import cpu_groups, lines, pressure_group
from rankscope.node.health.cpu_use import CpuUse
from rankscope.records.rank import HostSample

__all__ = ["HostReader"]


class HostReader:
    """Reads the host of this process.

    Args:
        proc: mount point of procfs.
        cgroups: where cgroups are searched in addition to their mounts.
        job: the ancestor of the job's processes; by default the parent of this process, the launcher.
    """

    def __init__(
        self, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup"), job: int | None = None
    ) -> None:
        self._proc = proc
        self._group, self._quota = _tightest(cpu_groups(proc, cgroups))
        self._pressed = pressure_group(proc, cgroups)
        self._use = CpuUse(proc, os.getppid() if job is None else job)

    def read(self, time_ns: int) -> HostSample:
        """Return one sample."""
        stat = _pairs(self._group / "cpu.stat") if self._group is not None else {}
        held_us = stat.get("throttled_usec")  # v2; v1 has throttled_time, in ns
        held_ns = stat.get("throttled_time") if held_us is None else held_us * 1000
        load = _words(self._proc / "loadavg")
        busy, stolen = self._use.machine_ms(os.sched_getaffinity(0))
        everywhere, _ = self._use.machine_ms(None)
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
            cpu_busy_ms=busy,
            host_busy_ms=everywhere,
            cpu_stolen_ms=stolen,
            job_cpu_ms=self._use.job_ms(),
            cpu_waited_ms=_stalled(self._proc / "pressure" / "cpu"),
            group_cpu_waited_ms=None if self._pressed is None else _stalled(self._pressed / "cpu.pressure"),
        )

    def _cpus(self) -> float:
        usable = len(os.sched_getaffinity(0))
        return float(usable) if self._quota is None else min(float(usable), self._quota)

    def _available(self) -> int | None:
        for line in lines(self._proc / "meminfo"):
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return None

    def _pressure(self, resource: str) -> float | None:
        for word in _words(self._proc / "pressure" / resource):
            name, _, value = word.partition("=")
            if name == "avg10":  # the first line is "some"
                return float(value)
        return None


def _stalled(path: Path) -> float | None:
    """Return PSI's ``some total``, in ms."""
    for word in _words(path):
        name, _, value = word.partition("=")
        if name == "total":
            return int(value) / 1e3
    return None


def _tightest(groups: list[Path]) -> tuple[Path | None, float | None]:
    """Return the cgroup with the smallest quota, and that quota in CPUs; without any, the innermost."""
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
    return {key: int(value) for key, value in (line.split() for line in lines(path))}


def _words(path: Path) -> list[str]:
    found = lines(path)
    return found[0].split() if found else []
