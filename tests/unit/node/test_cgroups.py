"""Control groups are found by their mounts, wherever they are mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.node.health.cgroups import cpu_groups, pressure_group
from rankscope.node.health.host import HostReader


@pytest.fixture
def write(tmp_path):
    def write(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def mounts(root: Path) -> str:
    return (
        f"31 23 0:28 / {root}/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
        f"32 31 0:29 / {root}/fs/cgroup/processors rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
        f"41 31 0:38 / {root}/fs/elsewhere rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
        "broken\n"
    )


def test_version_2_beside_version_1(write, tmp_path) -> None:
    # GIVEN controllers of version 1, and version 2, which alone has pressure, mounted at a place of the site's own
    root = write(
        proc__self__cgroup="1:cpu,cpuacct:/job\n0::/job/inner\n",
        proc__self__mountinfo=mounts(tmp_path),
        fs__cgroup__processors__job__placeholder="",
        fs__elsewhere__job__placeholder="",
    )
    (root / "fs/cgroup/processors/job/cpu.stat").write_text("nr_periods 0\n")
    (root / "fs/elsewhere/job/cpu.pressure").write_text("some avg10=1.00 avg60=0.00 avg300=0.00 total=2500\n")
    # WHEN they are looked for
    proc, usual = root / "proc", root / "nothing"
    # THEN each is found where it is mounted, the innermost that can be seen first
    assert cpu_groups(proc, usual)[0] == root / "fs/cgroup/processors/job"
    assert pressure_group(proc, usual) == root / "fs/elsewhere/job"
    assert HostReader(proc, usual).read(7).group_cpu_waited_ms == 2.5


def test_the_usual_places_without_mounts(write) -> None:
    root = write(proc__self__cgroup="0::/job\n", cgroup__unified__job__placeholder="")
    (root / "cgroup/unified/job/cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
    assert pressure_group(root / "proc", root / "cgroup") == root / "cgroup/unified/job"


def test_a_host_without_cgroups(tmp_path) -> None:
    assert cpu_groups(tmp_path, tmp_path) == []
    assert pressure_group(tmp_path, tmp_path) is None
