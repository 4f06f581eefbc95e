"""The step log that a helper drains from a ring: folded when it is long, continued by the next helper."""

from __future__ import annotations

import gzip

import numpy as np

from rankscope.agent.steps.step_log import StepLog
from rankscope.between.step_logs import ENTRY, parse
from rankscope.node.gathering.folding import fold
from rankscope.node.gathering.step_log import KEPT_EXACT, StepLogDrain
from rankscope.records.running.step_log import ASKED, EVALUATION, STEP_LOG_ENTRY
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


def steps(log: StepLog, first: int, end: int) -> None:
    for number in range(first, end):
        log.step(False, 1_000_000 * number)
    log.flush()


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


def test_ten_hours_of_steps_of_20_ms_stay_below_30_mb():
    """On the node's disk; the file in the run directory is compressed. The last steps are exact, at most twice
    ``KEPT_EXACT`` of them, and all others folded."""
    rng = np.random.default_rng(0)
    entries = np.zeros(20_480, ENTRY)
    entries["step"] = 20_000 * rng.lognormal(0, 0.05, len(entries)) * np.where(rng.random(len(entries)) < 0.01, 5, 1)
    entries["span"] = 1
    number = np.arange(len(entries))
    # calls are known of 400 of 512 steps, the recorder is read once in 512, and every 50th step is an evaluation
    entries["issued"] = np.where(number % 512 < 400, 5_000, 0)
    entries["flags"] = np.where(number % 512 == 0, ASKED, 0) | np.where(number % 50 == 49, EVALUATION, 0)
    folded = len(fold(entries.tobytes())) / len(entries)
    steps = 10 * 3600 * 50
    size = 2 * KEPT_EXACT * STEP_LOG_ENTRY.size + (steps - 2 * KEPT_EXACT) * folded
    assert size < 30e6, f"{folded:.1f} bytes a folded step"
