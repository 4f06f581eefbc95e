"""Identity and location of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.config import RunConfig, ToolConfig
from rankscope.errors import ConfigError
from rankscope.launcher.run.arguments import parse
from rankscope.launcher.run_plan import RunPlan, check


def planned(*words: str, run_dir: str | None = None) -> RunPlan:
    return check(parse([*words, "train.py"]).torchrun, ToolConfig(run=RunConfig(dir=run_dir)))


def test_one_node_needs_neither_name_nor_place_and_is_alone() -> None:
    plan, other = planned(), planned()
    assert (plan.run_id, plan.run_dir, plan.node, plan.alone) == (None, None, None, True)
    assert plan.launch != other.launch


def test_one_node_is_alone_whatever_its_rendezvous_is_called(tmp_path: Path) -> None:
    words = ("--rdzv-id", "job7")
    plan, other = (planned(*words, run_dir=str(tmp_path / "here")) for _ in range(2))
    assert (plan.run_id, plan.run_dir, plan.alone) == ("job7", tmp_path / "here", True)
    assert plan.launch != other.launch


def test_nodes_of_one_rendezvous_are_one_launch() -> None:
    plans = [planned("--nnodes=2", f"--node-rank={rank}", "--rdzv-id=7", run_dir="/s") for rank in (0, 1)]
    assert plans[0].launch == plans[1].launch
    assert not plans[0].alone
    assert plans[0].launch != planned("--nnodes=2", "--rdzv-id=8", run_dir="/s").launch


@pytest.mark.parametrize("nnodes", ["2", "1:2"])
def test_several_nodes_must_name_the_run_and_share_its_folder(nnodes: str) -> None:
    with pytest.raises(ConfigError, match=r"--rdzv-id=\$SLURM_JOB_ID"):
        planned("--nnodes", nnodes, run_dir="/shared/x")
    with pytest.raises(ConfigError, match=r"-S run\.dir="):
        planned("--nnodes", nnodes, "--rdzv-id", "7")
    with pytest.raises(ConfigError, match="--rdzv-id"):
        planned("--nnodes", nnodes, "--rdzv-id", "none", run_dir="/shared/x")


def test_nodes_are_distinguished_by_rank_or_by_host() -> None:
    assert planned("--nnodes=2", "--node-rank=1", "--rdzv-id=7", run_dir="/s").node == "1"
    assert planned("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=7", run_dir="/s").node is None


def test_leaves_nonsense_to_torchrun() -> None:
    assert planned("--nnodes", "many").run_id is None
