"""Number of attempts before a node joined, from the files of other nodes in the run directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.node.earlier_attempts import attempts_before, tell_of_attempts
from rankscope.node.mirroring import Mirroring
from rankscope.node.run_claim import claim_run
from rankscope.records.codec import to_json
from rankscope.records.running.live import NodeLive, RankLive
from rankscope.records.running.node_task import NodeTask
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


@pytest.mark.process
def test_in_a_store_a_node_that_joins_learns_of_attempts_that_nobody_has_recorded(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    store, live = tmp_path / "store", NodeLive(node="a", host="a", attempt=1, world_size=1, time_ns=1)

    def node(name: str) -> tuple[Mirroring, Spool]:
        spool = Spool(tmp_path / name)
        spool.path.mkdir()
        return Mirroring(spool.part, store.as_uri(), limit_s=300), spool

    def joins(name: str) -> int:
        where, spool = node(name)
        task = NodeTask(
            run_id="r", launch="l", alone=False, run_dir=None, base="", node=None, launcher_pid=1, argv=[], config={},
            gather_timeout_s=300.0, report=False, hta=False, report_timeout_s=1.0, store=store.as_uri(), elastic=True,
        )  # fmt: skip
        claim_run(spool, task, where, patient=False)
        assert not RunDir(spool.part).live_folder.exists()
        return spool.earlier_attempts()

    assert joins("first") == 0
    first, spool = node("a")
    part = RunDir(spool.part)
    for steps in (0, 7):
        live.ranks = [RankLive(rank=0, steps=steps)]
        part.live_folder.mkdir(parents=True, exist_ok=True)
        part.live("a").write_text(to_json(live))
        first.push_new_attempt(live)
        first.end()
        assert RunDir(store).live("a").exists() == (steps > 0)
    assert joins("second") == 2
    # AND what was recorded tells as much where the states of others cannot be read
    RunDir(store).live("a").unlink()
    (store / "attempt_4" / "window_000").mkdir(parents=True)
    (store / "attempt_4" / "window_000" / "rank_00000.trace.json.gz.age").write_text("sealed")
    assert joins("third") == 5
