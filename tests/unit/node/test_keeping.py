"""Choice of the ranks whose traces are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis.diagnosis import empty_report
from rankscope.config import ToolConfig
from rankscope.errors import ConfigError
from rankscope.node.gathering.disk_limits import DiskLimits
from rankscope.node.gathering.holding import Holding
from rankscope.node.gathering.placing import Placing
from rankscope.node.kept_traces import choose, in_words
from rankscope.records.codec import to_json
from rankscope.records.rank import RankRecord
from rankscope.records.report import ClusterReport, Verdict
from rankscope.records.rows import GroupRow, RankSummary
from rankscope.records.running.node_task import KeptTraces
from rankscope.rundir.layout import RunDir
from rankscope.rundir.spool import Spool


def report(kind: str, ranks: list[int], *teams: list[int], world: int = 8, lost: tuple[int, ...] = ()) -> ClusterReport:
    made = empty_report(None)
    made.verdict = Verdict(kind=kind, ranks=ranks)  # type: ignore[arg-type]
    made.ranks = [RankSummary(rank=r, compute_pct=None if r in lost else 50.0) for r in range(world)]
    nothing = dict.fromkeys(
        ("dtype", "calls_per_step", "megabytes_per_call", "wait_ms_per_step", "transfer_ms_per_step",
         "exposed_ms_per_step", "bus_gb_s")
    )  # fmt: skip
    made.groups = [GroupRow(group=str(t), ranks=t, collective="allreduce", **nothing) for t in teams]
    return made


@pytest.mark.parametrize(
    ("of", "kept", "suspects"),
    [
        (None, None, []),
        (report("insufficient_data", []), None, []),
        (report("straggler", [5]), [0, 4, 5], [5]),
        # its team is 1 3 5 7, and the whole job: 3 does the same work
        (report("straggler", [5], [1, 3, 5, 7], list(range(8))), [0, 3, 5], [5]),
        (report("straggler", [5], [1, 3, 5, 7], lost=(3,)), [0, 5, 7], [5]),
        (report("straggler", [5], [4, 5], lost=(4,)), [0, 5, 6], [5]),  # none sound in its team: the nearest of all
        (report("balanced", []), [0, 1], []),
        (report("straggler", list(range(8))), list(range(8)), list(range(8))),
    ],
)
def test_kept_are_the_named_ranks_one_peer_of_each_and_rank_0(
    of: ClusterReport | None, kept: list[int] | None, suspects: list[int]
) -> None:
    found = choose(of)
    assert found.ranks == kept
    assert found.suspects == suspects


def test_a_configuration_without_a_verdict_to_decide_is_refused() -> None:
    config = ToolConfig()
    config.gather.keep = "suspects"
    config.__post_init__()
    config.analysis.enabled = False
    with pytest.raises(ConfigError, match="needs a verdict"):
        config.__post_init__()


def held(folder: Path, limits: DiskLimits = DiskLimits()) -> tuple[Holding, Spool, RunDir]:  # noqa: B008
    """Traces of ranks 0 and 1 in the spool of a node, each 1,000 bytes."""
    spool, run = Spool(folder / "spool"), RunDir(folder / "run")
    spool.path.mkdir()
    run.window(0, 0).mkdir(parents=True)
    for rank in (0, 1):
        spool.held(0, 0, rank).write_bytes(bytes(1000))
        record = RankRecord(rank=rank, local_rank=rank, world_size=2, host="h", pid=1, attempt=0, window=0)
        record.columns = "n.columns"
        spool.placed(0, 0, rank).write_text(to_json(record))
    return Holding(spool, run, Placing(run), limits), spool, run


def test_a_trace_without_disk_space_stays_and_is_reported(tmp_path: Path) -> None:
    holding, spool, run = held(tmp_path, DiskLimits(most=1500))
    assert holding.settle(KeptTraces(ranks=None)) == 1
    assert list(holding.left) == ["held_0_0_1.trace.json.gz"]
    assert "gather.most_gb" in holding.left["held_0_0_1.trace.json.gz"]
    assert spool.holds() == [spool.held(0, 0, 1)]
    assert run.trace(0, 0, 0).stat().st_size == 1000


def test_a_decision_names_the_ranks_that_it_drops(tmp_path: Path) -> None:
    holding, spool, run = held(tmp_path)
    assert holding.settle(KeptTraces(ranks=[1])) == 1
    assert spool.holds() == []
    assert (run.trace(0, 0, 0).exists(), run.trace(0, 0, 1).exists()) == (False, True)


def test_the_decision_in_words() -> None:
    assert "whole traces are kept of ranks 0, 4, 5 (at fault: rank 5;" in in_words(
        KeptTraces(ranks=[0, 4, 5], suspects=[5])
    )
    assert in_words(KeptTraces(why="there is no verdict")).endswith("all traces are kept, since there is no verdict")
