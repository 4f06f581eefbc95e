"""CPU times of this process's threads by the scheduler's counts, step by step."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from rankscope.agent.steps.cpu_time import CpuTimes

MS = 10**6


@pytest.fixture
def thread(tmp_path):
    """Write what the kernel would say of a thread."""

    def thread(tid: int, ran: int, waited: int, name: str = "python") -> None:
        folder = tmp_path / str(tid)
        folder.mkdir(exist_ok=True)
        (folder / "schedstat").write_text(f"{ran} {waited} 12\n")
        (folder / "comm").write_text(f"{name}\n")

    return thread


@pytest.fixture
def own() -> int:
    return threading.get_native_id()


@pytest.fixture
def script_thread():
    """The id of another thread that Python knows."""
    done = threading.Event()
    started = threading.Thread(target=done.wait, daemon=True)
    started.start()
    yield started.native_id
    done.set()
    started.join()


def test_each_step_has_its_own(tmp_path, thread, own, script_thread) -> None:
    # GIVEN the training thread, a thread of gloo and one of the script
    thread(own, 100 * MS, 7 * MS)
    thread(own + 100000, 5 * MS, 0, "gloo_tcp_loop")
    thread(script_thread, 0, 0)
    times = CpuTimes(tmp_path)
    times.begin()
    # WHEN two steps pass
    thread(own, 130 * MS, 9 * MS)
    thread(script_thread, 40 * MS, 0)
    times.step()
    thread(own, 150 * MS, 29 * MS)
    thread(own + 100000, 6 * MS, MS, "gloo_tcp_loop")
    times.step()
    # THEN each thread has what it ran and waited in each
    first, *others = times.end()
    assert (first.tid, first.kind, first.cpu_ms, first.wait_ms) == (own, "training", [30, 20], [2, 20])
    by_name = {(t.name, t.kind): (t.cpu_ms, t.wait_ms) for t in others}
    assert by_name == {("gloo_tcp_loop", "native"): ([0, 1], [0, 1]), ("python", "python"): ([40, 0], [0, 0])}


def test_a_thread_that_ends_adds_nothing(tmp_path, thread, own) -> None:
    thread(own, 0, 0)
    thread(own + 100000, 0, 0)
    times = CpuTimes(tmp_path)
    times.begin()
    thread(own + 100000, 3 * MS, 0)
    times.step()
    os.truncate(tmp_path / str(own + 100000) / "schedstat", 0)
    times.step()
    assert times.end()[1].cpu_ms == [3, 0]


def test_idle_threads_are_left_out_and_the_training_thread_never(tmp_path, thread, own) -> None:
    thread(own, 0, 0)
    thread(own + 100000, 0, 0)
    times = CpuTimes(tmp_path)
    times.begin()
    times.step()
    assert [t.kind for t in times.end()] == ["training"]


def test_of_many_threads_the_busiest_are_followed(tmp_path, thread, own) -> None:
    thread(own, 0, 0)
    for number in range(200):
        thread(10**7 + number, number * MS, 0, f"t{number}")
    times = CpuTimes(tmp_path)
    times.begin()
    for number in range(200):
        thread(10**7 + number, (number + 1) * MS, 0, f"t{number}")
    times.step()
    assert {t.name for t in times.end()[1:]} == {f"t{n}" for n in range(200 - 63, 200)}


@pytest.mark.parametrize("text", [None, "", "not a number"])
def test_without_such_counts_nothing_is_reported(tmp_path, own, text) -> None:
    if text is not None:
        (tmp_path / str(own)).mkdir()
        (tmp_path / str(own) / "schedstat").write_text(text)
        (tmp_path / str(own) / "comm").write_text("python\n")
    times = CpuTimes(tmp_path)
    times.begin()
    times.step()
    assert all(not any(t.cpu_ms) for t in times.end())


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux")
def test_this_process_is_followed_and_no_file_stays_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    times = CpuTimes()
    times.begin()
    times.step()
    times.step()
    found = times.end()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    if found:  # a kernel without CONFIG_SCHED_INFO keeps no counts
        assert (found[0].tid, len(found[0].cpu_ms)) == (threading.get_native_id(), 2)
        assert min(found[0].cpu_ms + found[0].wait_ms) >= 0
