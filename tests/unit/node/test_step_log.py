"""The step log that a helper drains from a ring: folded when it is long, continued by the next helper."""

from __future__ import annotations

import gzip

from rankscope.agent.steps.step_log import StepLog
from rankscope.between.step_logs import parse
from rankscope.node.gathering.step_log import StepLogDrain
from rankscope.records.running.step_log import STEP_LOG_ENTRY
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


def steps(log: StepLog, first: int, end: int) -> None:
    for number in range(first, end):
        log.step(False, 1_000_000 * number)


def placed(tmp_path):
    return parse(gzip.decompress(RunDir(tmp_path / "run").step_log(0, 0).read_bytes()), "x")


def test_a_long_log_is_folded_and_the_last_steps_stay_exact(tmp_path, monkeypatch):
    monkeypatch.setattr("rankscope.node.gathering.step_log.KEPT_EXACT", 200)
    spool = Spool(tmp_path)
    log, drain = StepLog(spool.step_ring(0, 0)), StepLogDrain(spool)
    for first in range(0, 1000, 50):
        steps(log, first, first + 50)
        assert drain.drain() == {}
    assert drain.counts() == {(0, 0): 1000}
    drain.finish(RunDir(tmp_path / "run"))
    found = placed(tmp_path)
    assert found.steps == 1000
    assert found.is_exact()[-200:].all()
    assert len(found.entries) < 600
    assert abs(found.column("gc").mean() - 499.5) < 0.01  # the mean of 0 to 999 ms


def test_the_next_helper_goes_on_where_the_last_one_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("rankscope.node.gathering.step_log.KEPT_EXACT", 200)
    spool = Spool(tmp_path)
    log = StepLog(spool.step_ring(0, 0))
    for first in range(0, 1000, 125):
        steps(log, first, first + 125)
        drain = StepLogDrain(spool)  # a new one each time
        assert drain.drain() == {}
        with spool.step_log(spool.step_ring(0, 0)).open("ab") as half:
            half.write(bytes(STEP_LOG_ENTRY.size - 1))  # what a helper that was killed leaves
    StepLogDrain(spool).finish(RunDir(tmp_path / "run"))
    found = placed(tmp_path)
    assert found.steps == 1000
    assert abs(found.column("gc").mean() - 499.5) < 0.01


def test_a_ring_of_another_version_is_reported(tmp_path):
    spool = Spool(tmp_path)
    spool.step_ring(0, 0).write_bytes((7).to_bytes(8, "little") + bytes(16 * 7))
    assert StepLogDrain(spool).drain() == {"pulse_0_0": "another version of rankscope has written it"}
