"""Which processes use the CPUs: those of the job descend from its launcher."""

from __future__ import annotations

import os

import pytest

from rankscope.node.health.cpu_use import CpuUse

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def process(tmp_path):
    """Write a process's stat: its parent and its user and system time in ticks."""

    def process(pid: int, parent: int, user: int, system: int, name: str = "python", began: int = 0) -> None:
        fields = ["S", parent, *[0] * 9, user, system, *[0] * 6, began, *[0] * 3]
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")

    return process


def test_the_job_is_a_tree(tmp_path, process) -> None:
    # GIVEN a launcher, a rank under a shell with a bracket in its name, its loader, and a stranger
    process(10, 1, 1, 0)
    process(11, 10, 0, 0, name="sh (run) x")
    process(12, 11, 100, 20)
    process(13, 12, 30, 0)
    process(99, 1, 5000, 0)
    use = CpuUse(tmp_path, 10)
    # THEN the stranger's time is not the job's
    assert use.job_ms() == 151 * TICK_MS


def test_what_has_ended_still_counts(tmp_path, process) -> None:
    process(10, 1, 1, 0)
    process(12, 10, 100, 0)
    use = CpuUse(tmp_path, 10)
    use.job_ms()
    (tmp_path / "12" / "stat").unlink()
    process(10, 1, 2, 0)
    assert use.job_ms() == 102 * TICK_MS


def test_new_processes_are_found_and_looked_for_seldom(tmp_path, process, monkeypatch) -> None:
    # GIVEN a look through all processes that takes 10 ms of CPU: half a per cent of the time is one in 2 s
    now, used = iter([0.0, 1.0, 2.5]), iter([0.0, 0.01, 0.0, 0.01])
    monkeypatch.setattr("rankscope.node.health.cpu_use.time.monotonic", lambda: next(now))
    monkeypatch.setattr("rankscope.node.health.cpu_use.time.thread_time", lambda: next(used))
    process(10, 1, 0, 0)
    use = CpuUse(tmp_path, 10)
    use.job_ms()
    process(14, 10, 7, 0, began=10**12)
    assert [use.job_ms(), use.job_ms()] == [0.0, 7 * TICK_MS]


def test_what_a_process_used_before_it_was_found_is_not_of_the_last_second(tmp_path, process, monkeypatch) -> None:
    now = iter([0.0, 100.0, 200.0])
    monkeypatch.setattr("rankscope.node.health.cpu_use.time.monotonic", lambda: next(now))
    process(10, 1, 0, 0)
    use = CpuUse(tmp_path, 10)
    use.job_ms()
    process(14, 10, 500, 0, began=0)  # it ran for long, and was under another parent until now
    process(15, 10, 3, 0, began=10**12)  # it began since
    assert use.job_ms() == 3 * TICK_MS
    process(14, 10, 540, 0, began=0)
    assert use.job_ms() == 43 * TICK_MS


def test_only_the_cpus_of_the_job_count(tmp_path) -> None:
    # user, nice, system, idle, iowait, irq, softirq, steal
    (tmp_path / "stat").write_text(
        "cpu  999 0 0 0 0 0 0 0 0 0\ncpu0 10 2 3 900 50 1 4 6 0 0\ncpu1 500 0 0 0 0 0 0 0 0 0\nintr 5\n"
    )
    assert CpuUse(tmp_path, 1).machine_ms({0}) == (20 * TICK_MS, 6 * TICK_MS)
    assert CpuUse(tmp_path, 1).machine_ms({7}) == (None, None)


def test_a_host_without_statistics(tmp_path) -> None:
    use = CpuUse(tmp_path / "nothing", 1)
    assert (use.job_ms(), use.machine_ms({0})) == (None, (None, None))
