"""Ranks that replace themselves by another Python: each stays one rank, and what it trains anew is an attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from doors.doors import TORCHRUN, Door
from doors.launches import Launches

pytestmark = [pytest.mark.doors, pytest.mark.long, pytest.mark.timeout(850)]


def test_ranks_that_begin_anew_are_recorded_each_time_they_train(tmp_path: Path) -> None:
    launches = Launches(Door("again", "again.py", TORCHRUN, by_run=True), tmp_path)
    try:
        ours, bare = (launches.left(recorded) for recorded in (True, False))
        manifest = launches.manifest()
    finally:
        launches.end_all()
    assert ours == bare
    # skipped 2, waited 1, warmed up 1: steps 4 to 8 of each training
    assert [(w.attempt, r.rank, r.status, r.first_step, r.last_step) for w in manifest.windows for r in w.records] == [
        (attempt, rank, "ok", 4, 8) for attempt in (0, 1) for rank in (0, 1)
    ]
    lives = sorted((life.attempt, life.rank, life.steps_counted, life.reason) for life in manifest.lives)
    replaced = "the process replaced itself by another program"
    assert lives == [(0, 0, 12, replaced), (0, 1, 12, replaced), (1, 0, 12, None), (1, 1, 12, None)]
    assert len({(life.rank, life.pid) for life in manifest.lives}) == 2
