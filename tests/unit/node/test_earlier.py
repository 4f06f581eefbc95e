"""How many attempts there were before a node came, from what the others have left in the run directory."""

from __future__ import annotations

from pathlib import Path

from rankscope.node.earlier import attempts_before, tell_of_attempts
from rankscope.records.codec import to_json
from rankscope.records.running.live import NodeLive, RankLive
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


def test_attempts_are_known_by_their_windows_and_by_steps_of_ranks_that_live(tmp_path: Path) -> None:
    run, spool = RunDir(tmp_path / "R"), Spool(tmp_path)
    run.live_folder.mkdir(parents=True)
    assert attempts_before(run) == 0
    # GIVEN a node whose ranks have started and made no step: they may wait for this node
    live = NodeLive(node="a", host="a", attempt=0, world_size=2, time_ns=1, ranks=[RankLive(rank=0, steps=0)])
    run.live("a").write_text(to_json(live))
    run.live("b").write_text("{")
    assert attempts_before(run) == 0
    tell_of_attempts(spool, run)
    assert not spool.earlier.exists()
    # WHEN they have made steps without this node
    live.ranks[0].steps = 5
    run.live("a").write_text(to_json(live))
    assert attempts_before(run) == 1
    run.window(3, 0).mkdir(parents=True)
    tell_of_attempts(spool, run)
    assert spool.earlier_attempts() == 4
