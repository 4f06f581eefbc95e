"""Control groups of this process, found by the mounts, since version 2 may be mounted anywhere.

On hosts that keep version 1 for its controllers, version 2, the only one with pressure information, is in a folder of
its own, usually ``/sys/fs/cgroup/unified`` (cgroups(7), proc_pid_mountinfo(5)).
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["cpu_groups", "lines", "pressure_group"]


def cpu_groups(proc: Path, usual: Path) -> list[Path]:
    """Return the folders of the cgroup that governs CPU time and of its ancestors, innermost first, as far as visible.

    Args:
        proc: mount point of procfs.
        usual: where cgroups are searched in addition to their mounts.
    """
    for controllers, path in _memberships(proc):
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Version 1 mounts each controller in a folder of its own, sometimes visible only through a link named after one
        # controller.
        tops = _mounts(proc, "cpu" if controllers else None)
        tops += [usual / controllers, usual / "cpu"] if controllers else [usual, usual / "unified"]
        for top in tops:
            if found := _visible(top, path, "cpu.stat"):
                return found
    return []


def pressure_group(proc: Path, usual: Path) -> Path | None:
    """Return the folder of the innermost cgroup of version 2 that reports its CPU pressure."""
    for controllers, path in _memberships(proc):
        if not controllers:
            for top in (*_mounts(proc, None), usual, usual / "unified"):
                if found := _visible(top, path, "cpu.pressure"):
                    return found[0]
    return None


def lines(path: Path) -> list[str]:
    """Return the lines of a file of the kernel; none if it does not exist."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _memberships(proc: Path) -> list[tuple[str, str]]:
    """Return (controllers, path) of this process; version 2, which names no controllers, comes last."""
    entries = sorted(lines(proc / "self" / "cgroup"), key=lambda entry: entry.startswith("0:"))
    parts = [entry.split(":", 2) for entry in entries]
    return [(part[1], part[2]) for part in parts if len(part) == 3]


def _mounts(proc: Path, controller: str | None) -> list[Path]:
    """Return where version 2 is mounted (None), or a controller of version 1."""
    found = []
    for line in lines(proc / "self" / "mountinfo"):
        mount, _, kind = line.partition(" - ")
        words, tail = mount.split(), kind.split()
        if len(words) < 5 or len(tail) < 3:
            continue
        if tail[0] == "cgroup2" if controller is None else (tail[0] == "cgroup" and controller in tail[2].split(",")):
            found.append(Path(words[4].replace("\\040", " ")))
    return found


def _visible(top: Path, path: str, name: str) -> list[Path]:
    inner = Path(path.strip("/"))
    return [top / part for part in (inner, *inner.parents) if (top / part / name).exists()]
