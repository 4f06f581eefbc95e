"""What procfs shows of a rank's processes, from a procfs made by hand. 100 ticks are a second."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankscope.node.watching import from_outside
from rankscope.node.watching.from_outside import (
    cpu_beside_main_thread,
    main_thread_cpu,
    process_state,
    times_switched_out,
    waits_in_kernel,
)


@pytest.fixture(autouse=True)
def _a_hundred_ticks(monkeypatch):
    monkeypatch.setattr(from_outside, "_TICKS", 100)


def stat(name: str, state: str, parent: int, *ticks: int) -> str:
    """``ticks``: own in user and system mode, and those of children that have ended."""
    return f"1 ({name}) {state} {parent} {' '.join(['0'] * 9)} {' '.join(map(str, ticks))} 20 0"


def process(proc: Path, pid: int, parent: int, ticks: tuple[int, ...], threads: dict[int, tuple[int, int]]) -> None:
    """``threads``: number -> ticks, and nanoseconds in which it was ready to run."""
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(stat("a) b (c", "S", parent, *ticks))
    for number, (own, ready) in threads.items():
        task = proc / str(pid) / "task" / str(number)
        task.mkdir(parents=True)
        (task / "stat").write_text(stat("a) b (c", "D", parent, own, 0, 0, 0))
        (task / "schedstat").write_text(f"5 {ready} 7\n")
        (task / "status").write_text("Name:\tx\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t9\n")


def test_a_rank_its_threads_and_what_it_has_started(tmp_path):
    process(tmp_path, 7, 1, (300, 100, 50, 0), {7: (150, 250_000_000), 8: (250, 0)})
    process(tmp_path, 70, 7, (200, 0, 0, 0), {70: (200, 3_000_000_000)})
    process(tmp_path, 700, 70, (25, 0, 0, 0), {700: (25, 0)})
    process(tmp_path, 9, 1, (9999, 0, 0, 0), {9: (9999, 0)})  # somebody else's
    (tmp_path / "7" / "task" / "7" / "wchan").write_text("do_wait")
    assert process_state(tmp_path, 7) == "D"
    assert main_thread_cpu(tmp_path, 7) == pytest.approx(1.75)
    # 4.5 s of the rank, 2 and 0.25 of what it has started, 3.25 ready to run; without 1.75 of the main thread
    assert cpu_beside_main_thread(tmp_path, [7])[7] == pytest.approx(8.25)
    assert times_switched_out(tmp_path, 7) == 42
    assert waits_in_kernel(tmp_path, 7) == "do_wait"


def test_processes_that_are_gone(tmp_path):
    assert process_state(tmp_path, 7) == ""
    assert (main_thread_cpu(tmp_path, 7), cpu_beside_main_thread(tmp_path, [7])) == (0.0, {7: 0.0})
    assert (times_switched_out(tmp_path, 7), waits_in_kernel(tmp_path, 7)) == (0, "")


def test_the_real_one():
    assert process_state(Path("/proc"), os.getpid()) == "R"
    assert main_thread_cpu(Path("/proc"), os.getpid()) > 0
