"""Which run, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.config import RunConfig, ToolConfig
from rankscope.errors import ConfigError, RunDirError
from rankscope.launcher.arguments import parse
from rankscope.launcher.run_plan import RunPlan, check, take


def planned(*words: str, run_dir: str | None = None) -> RunPlan:
    return check(parse([*words, "train.py"]).torchrun, ToolConfig(run=RunConfig(dir=run_dir)))


def test_one_node_needs_neither_name_nor_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = planned()
    assert plan == RunPlan(run_id=None, run_dir=None, node=None)
    for number in (1, 2):
        run_dir, claim = take(plan)
        assert run_dir.path == tmp_path / "rankscope_runs" / f"run_000{number}"
        assert claim.run_id == f"run_000{number}"


def test_the_rendezvous_id_names_the_run(tmp_path: Path) -> None:
    plan = planned("--rdzv-id", "job7", run_dir=str(tmp_path / "here"))
    assert (plan.run_id, plan.run_dir) == ("job7", tmp_path / "here")
    assert take(plan)[1].run_id == "job7"


def test_a_run_dir_alone_names_the_run(tmp_path: Path) -> None:
    run_dir, claim = take(planned(run_dir=str(tmp_path / "here")))
    assert (run_dir.path, claim.run_id) == (tmp_path / "here", "here")


@pytest.mark.parametrize("nnodes", ["2", "1:2"])
def test_several_nodes_must_name_the_run_and_share_its_folder(nnodes: str) -> None:
    with pytest.raises(ConfigError, match=r"--rdzv-id=\$SLURM_JOB_ID"):
        planned("--nnodes", nnodes, run_dir="/shared/x")
    with pytest.raises(ConfigError, match=r"-S run\.dir="):
        planned("--nnodes", nnodes, "--rdzv-id", "7")
    with pytest.raises(ConfigError, match="--rdzv-id"):
        planned("--nnodes", nnodes, "--rdzv-id", "none", run_dir="/shared/x")


def test_nodes_are_told_apart_by_rank_or_by_host() -> None:
    assert planned("--nnodes=2", "--node-rank=1", "--rdzv-id=7", run_dir="/s").node == "1"
    assert planned("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=7", run_dir="/s").node is None


def test_two_nodes_share_a_run_and_a_second_run_is_refused(tmp_path: Path) -> None:
    for rank in ("0", "1"):
        words = ("--nnodes=2", f"--node-rank={rank}", "--rdzv-id=7")
        take(planned(*words, run_dir=str(tmp_path / "r")))
    with pytest.raises(RunDirError):
        take(planned("--nnodes=2", "--node-rank=1", "--rdzv-id=7", run_dir=str(tmp_path / "r")))
    with pytest.raises(RunDirError):
        take(planned("--rdzv-id=8", run_dir=str(tmp_path / "r")))


def test_leaves_nonsense_to_torchrun() -> None:
    assert planned("--nnodes", "many").run_id is None
