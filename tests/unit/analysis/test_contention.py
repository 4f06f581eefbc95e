"""Contention from the scheduler's counts of a recorded trace; numbers follow from the definition."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.evidence.contention import contention
from rankscope.analysis.windows.analyse import analyse_window
from rankscope.records.manifest import RunManifest, WindowRanks
from rankscope.records.rank import HostSample, RankRecord, StepTimes, ThreadTimes

pytestmark = pytest.mark.data
SECOND = 10**9


@pytest.fixture
def stalled(recorded):
    """A recorded DDP job on two CPU ranks; rank 1 stalls for its input."""
    return analyse_window(sorted(recorded("gloo_ddp_input").traces, key=lambda t: t.rank))


def thread(tid: int, kind: str, cpu: float, wait: float, name: str = "python", steps: int = 3) -> ThreadTimes:
    return ThreadTimes(tid=tid, name=name, kind=kind, cpu_ms=[cpu] * steps, wait_ms=[wait] * steps)


def manifest(window, *threads: list[ThreadTimes], load: list[HostSample] | None = None) -> RunManifest:
    first = int(window.views[0].trace.steps.number[0])
    inside = [window.step_ns / 1e6] * steps_of(window)
    records = [
        RankRecord(
            rank=rank, local_rank=rank, world_size=2, host="node", pid=1, attempt=window.attempt, window=window.window,
            first_step=first, threads=own, host_load=load or [], steps=StepTimes(inside_ms=inside),
        )
        for rank, own in enumerate(threads)
    ]  # fmt: skip
    ranks = WindowRanks(attempt=window.attempt, window=window.window, world_size=2, records=records)
    return RunManifest(
        run_id="r", argv=[], config={}, versions={}, hosts=["node"], world_size=2, attempts=1, exit_code=0,
        windows=[ranks], lives=[],
    )  # fmt: skip


def steps_of(window) -> int:
    return len(window.views[0].trace.steps)


def test_run_queue_is_taken_off_what_a_rank_took(stalled) -> None:
    steps = steps_of(stalled)
    free = [[thread(1, "training", 20.0, 0.0, steps=steps)] for _ in range(2)]
    held = [free[0], [thread(1, "training", 20.0, 7.0, steps=steps)]]
    without, found = (contention([stalled], manifest(stalled, *threads)) for threads in (free, held))
    assert found.of(0) == without.of(0)
    assert found.of(1).held_ms == [7.0] * steps
    # what stands in both, waking up after a call has ended, is taken off once
    less = np.array(without.of(1).own_ms) - np.array(found.of(1).own_ms)
    assert ((less <= 7.0) & (less >= 0.0)).all()
    assert sum(found.of(1).named_ms["input_stall"]) > 10 * sum(found.of(0).named_ms["input_stall"])


def test_no_more_is_gained_than_was_waited(stalled) -> None:
    steps = steps_of(stalled)
    threads = [[thread(1, "training", 20.0, wait, steps=steps)] for wait in (5.0, 8.0)]
    found = contention([stalled], manifest(stalled, *threads))
    assert 0 < found.cost_ms <= 8.0 + 1e-6


def test_threads_that_serve_the_training_count_and_no_others(stalled) -> None:
    steps = steps_of(stalled)
    training = thread(1, "training", 20.0, 1.0, steps=steps)
    pool = [thread(t, "native", 18.0, wait, steps=steps) for t, wait in ((5, 3.0), (6, 4.0))]
    idle = thread(7, "native", 0.1, 50.0, steps=steps)
    gloo = thread(8, "native", 9.0, 50.0, name="gloo_tcp_loop", steps=steps)
    found = contention([stalled], manifest(stalled, [training, *pool, idle, gloo], [training]))
    # the training thread waits for the last of its OpenMP pool: 1 + 4
    assert found.of(0).held_ms == [5.0] * steps


def test_threads_of_the_script_are_named_as_the_cause_of_contention(stalled) -> None:
    steps = steps_of(stalled)
    training = thread(1, "training", 20.0, 30.0, steps=steps)
    burner, usual = thread(2, "python", 25.0, 9.0, steps=steps), thread(2, "python", 1.0, 0.0, steps=steps)
    found = contention([stalled], manifest(stalled, [training, usual], [training, burner]))
    assert found.of(0).held_ms == [30.0] * steps
    assert found.of(1).held_ms == [30.0 - (25.0 - 1.0)] * steps
    assert found.of(1).script_ms == [25.0] * steps


def test_others_are_what_the_job_is_not(stalled) -> None:
    # two CPUs for 2 s: 3 s busy, 1 s of it the job's; so others use 1 ms of CPU in each ms
    load = [
        HostSample(time_ns=0, cpus=2.0, cpu_busy_ms=100.0, job_cpu_ms=50.0),
        HostSample(time_ns=2 * SECOND, cpus=2.0, cpu_busy_ms=3100.0, job_cpu_ms=1050.0),
    ]
    threads = [[thread(1, "training", 20.0, 1.0, steps=steps_of(stalled))] for _ in range(2)]
    found = contention([stalled], manifest(stalled, *threads, load=load))
    assert found.cpus == {"node": 2.0}
    assert found.others_ms == {"node": pytest.approx(stalled.step_ns / 1e6)}


def test_what_runs_beside_on_the_host_is_neither_processes_nor_threads_of_the_job(stalled) -> None:
    # all CPUs of the host: 8 s busy in 2 s; of each 4 ms the job used 0.5 by its processes, and more by the threads of
    # its two ranks if these ran longer than a quarter of the step
    load = [
        HostSample(time_ns=0, cpus=2.0, cpu_busy_ms=100.0, host_busy_ms=1000.0, job_cpu_ms=50.0),
        HostSample(time_ns=2 * SECOND, cpus=2.0, cpu_busy_ms=3100.0, host_busy_ms=9000.0, job_cpu_ms=1050.0),
    ]
    step_ms = stalled.step_ns / 1e6
    for ran_ms in (20.0, step_ms):
        threads = [[thread(1, "training", ran_ms, 1.0, steps=steps_of(stalled))] for _ in range(2)]
        found = contention([stalled], manifest(stalled, *threads, load=load))
        assert found.beside_ms == {"node": pytest.approx(4.0 * step_ms - max(0.5 * step_ms, 2 * ran_ms))}


def test_older_records_have_no_witness(stalled) -> None:
    assert contention([stalled], manifest(stalled, [], [])) is None
    assert contention([stalled], None) is None


def test_steps_that_were_not_counted_are_not_guessed(stalled) -> None:
    threads = [[thread(1, "training", 20.0, 1.0, steps=steps_of(stalled) - 1)] for _ in range(2)]
    assert contention([stalled], manifest(stalled, *threads)) is None
