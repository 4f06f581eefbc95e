"""Windows close only where no thread can still write into memory that the profiler frees.

glibc is told to give every block above a kilobyte pages of its own, which go back to the system when it is freed. There
a write into freed memory ends the process at once, where it would else change some other value.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from support.launching import RANKSCOPE, TORCHRUN, flags_of

pytestmark = [pytest.mark.dist, pytest.mark.forked_launcher]

BUSY = Path(__file__).parents[2] / "benchmarks" / "busy.py"
OFTEN = ("skip_first=3", "warmup=1", "active=3", "every=9")
UNLIMITED = ("budget.windows=10000", "budget.step_pct=100", "analysis.enabled=false")
GUARD = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1000"}


@pytest.fixture
def busy(start, finish, tmp_path):
    """The busy job under us, with a window every nine steps, and alone."""

    def busy(*words, flags=(), ours=True):
        settings = [f"run.dir={tmp_path / 'RUN'}", *(f"schedule.{s}" for s in OFTEN), *UNLIMITED]
        launcher = [*RANKSCOPE, *flags_of(*settings), *flags] if ours else [*TORCHRUN]
        words = [*launcher, "--standalone", "--nproc-per-node", 2, BUSY, *words]
        return finish(start(words, GUARD if ours else None))

    return busy


def whole(done) -> int:
    """Windows whose traces are whole on all ranks."""
    return sum(all(r.status == "ok" and r.trace for r in window.records) for window in done.manifest.windows)


def computed(done) -> str:
    """Steps and last loss, to the last bit."""
    return re.search(r"^steps .*$", done.stdout, re.M)[0]


# FSDP2 and compiled steps: make test-harm.
@pytest.mark.parametrize("style", ["ddp", pytest.param("hooks", marks=pytest.mark.long)])
def test_threads_that_run_operators_and_calls_and_blocks_that_outlast_a_window(busy, style):
    words = ["--style", style, "--beside", "threads", "checkpoint", "async", "ranges", "--steps", 42]
    done = busy(*words)
    assert done.code == 0, done.stderr
    assert whole(done) >= 3
    assert computed(done) == computed(busy(*words, ours=False))


def test_workers_that_are_forked_inside_a_window_record_nothing_and_end(busy):
    done = busy("--beside", "workers", "--steps", 54)  # forked in step 40; windows are due every nine steps
    assert done.code == 0, done.stderr
    assert whole(done) >= 4


def test_the_scripts_own_profiler_between_and_inside_our_windows(busy):
    done = busy("--beside", "threads", "profiler", "--steps", 100)
    assert done.code == 0, done.stderr
    assert whole(done) >= 4
    reasons = {r.reason for w in done.manifest.windows for r in w.records if r.status in ("missing", "partial")}
    assert all("torch.profiler" in reason or "the job ended" in reason for reason in reasons)


@pytest.mark.long  # which backend is taken: tests/unit/agent/test_planner.py
@pytest.mark.parametrize("backend", ["kineto", "kineto_alone"])
def test_with_libkinetos_threads_torch_profiler_records_and_the_reason_is_reported(busy, backend):
    done = busy("--steps", 20, flags=["-S", f"capture.backend={backend}"])
    assert done.code == 0, done.stderr
    assert {(r.status, r.capture) for r in done.records()} == {("ok", "inline")}
    assert all("can end the job" in r.capture_reason for r in done.records())


@pytest.mark.long
@pytest.mark.parametrize("style", ["ddp", "hooks", "compiled", "fsdp2"])
@pytest.mark.parametrize("step_ms", [1, 5, 20])
def test_five_hundred_windows(busy, style, step_ms):
    # GIVEN 12 jobs of 43 windows and more: 9 steps each, of which the first begins with step 4
    done = busy("--style", style, "--step-ms", step_ms, "--beside", "threads", "checkpoint", "async", "ranges",
                "--steps", 400)  # fmt: skip
    assert done.code == 0, done.stderr
    assert whole(done) >= 42


IN_ANOTHER_THREAD = """
    import threading, torch
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counted = []

    def profile():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            torch.ones(3) + 1
        counted.append(len(own.events()))

    for step in range(40):
        if step == 8:
            thread = threading.Thread(target=profile)
            thread.start()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        if step == 8:
            thread.join()
    print("own", counted[0] > 0, torch._C._autograd._profiler_enabled(), flush=True)
"""


def test_the_scripts_own_profiler_in_another_thread_waits_for_ours_to_end(start, finish, tmp_path):
    # GIVEN a window of steps 6 to 11, and a profiler that a second thread begins in step 8
    script = tmp_path / "two.py"
    script.write_text(textwrap.dedent(IN_ANOTHER_THREAD))
    settings = flags_of(f"run.dir={tmp_path / 'RUN'}", "schedule.skip_first=3", "analysis.enabled=false")
    done = finish(start([*RANKSCOPE, *settings, script], GUARD))
    assert done.code == 0, done.stderr
    assert "own True False" in done.stdout
    (record,) = done.records()
    assert record.status in ("ok", "partial")
    assert record.status == "ok" or "ended for it" in record.reason
