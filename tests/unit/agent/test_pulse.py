"""The ring of step times, written by the agent and drained by the helper."""

from __future__ import annotations

import gzip

from rankscope.agent.steps.step_log import StepLog
from rankscope.node.step_log import StepLogDrain
from rankscope.records.step_log import STEP_LOG_CAPACITY, STEP_LOG_ENTRY
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


def entries(tmp_path) -> list[tuple[int, ...]]:
    return list(STEP_LOG_ENTRY.iter_unpack(gzip.decompress(RunDir(tmp_path / "run").pulse(0, 1).read_bytes())))


def test_every_step_reaches_the_run_directory_once(tmp_path):
    spool = Spool(tmp_path)
    pulse, drain = StepLog(spool.pulse(0, 1)), StepLogDrain(spool)
    pulse.input_ns = 5_000_000
    assert pulse.step(False, 2_000_000) == 0  # nobody saw the first step begin
    drain.drain()
    assert pulse.step(True, 0) > 0
    drain.drain()
    pulse.step(False, 0)
    drain.finish(RunDir(tmp_path / "run"))
    # duration, data loader and garbage collection in microseconds, inside a window
    (first, second, third) = entries(tmp_path)
    assert first == (0, 5000, 2000, 0)
    assert second[1:] == (0, 0, 1)
    assert third[1:] == (0, 0, 0)


def test_a_ring_that_went_round_keeps_the_newest(tmp_path):
    spool = Spool(tmp_path)
    pulse, drain = StepLog(spool.pulse(0, 1)), StepLogDrain(spool)
    for number in range(STEP_LOG_CAPACITY + 3):
        pulse.step(False, 1000 * number)
    drain.finish(RunDir(tmp_path / "run"))
    found = entries(tmp_path)
    # the first three were overwritten before anyone looked, and stay zero
    assert len(found) == STEP_LOG_CAPACITY + 3
    assert [entry[2] for entry in found[:5]] == [0, 0, 0, 3, 4]
    assert found[-1][2] == STEP_LOG_CAPACITY + 2
