"""Each run of a sweep as a job of submitit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rankscope.errors import ConfigError
from rankscope.sweeps import cluster
from rankscope.sweeps.cluster import parameters_of, submit, with_rendezvous
from rankscope.sweeps.folder import SweepDir
from rankscope.sweeps.local import Stop
from rankscope.sweeps.work import Launch, missing

from .conftest import plan


def test_parameters_are_numbers_where_they_are() -> None:
    found = parameters_of(["timeout_min=60", "slurm_partition=gpu", "slurm_additional_parameters={'qos': 'high'}"])
    assert found == {"timeout_min": 60, "slurm_partition": "gpu", "slurm_additional_parameters": {"qos": "high"}}
    with pytest.raises(ConfigError, match="is no NAME=VALUE"):
        parameters_of(["timeout_min"])


def test_nodes_of_a_job_meet_on_the_first_one_unless_the_user_says_where() -> None:
    words = with_rendezvous(["run", "--nproc-per-node", "8", "train.py"], ["gpu01", "gpu02"], "4711")
    assert words[:5] == [
        "run", "--nnodes=2", "--rdzv-id=4711", "--rdzv-backend=c10d", "--rdzv-endpoint=gpu01:29400",
    ]  # fmt: skip
    assert words[5:] == ["--nproc-per-node", "8", "train.py"]


def test_without_submitit_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    sweep = SweepDir(tmp_path / "sweep")
    with pytest.raises(ConfigError, match=r"pip install 'rankscope\[cluster\]'"):
        submit([], Launch(), sweep, Stop(), print, cluster="debug", parameters={})


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # its logs
def test_each_run_is_a_job_that_notes_its_own_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """submitit's debug executor runs its jobs in this process; the shell stands for `rankscope run`."""
    pytest.importorskip("submitit", reason="submitit is not installed (rankscope[cluster])")
    line = 'echo "$*"; case "$*" in *cap_mb=1*) exit 3;; esac'
    monkeypatch.setattr(cluster, "command", lambda module, *words: ["sh", "-c", line, "run", *words])
    sweep, said = SweepDir(tmp_path / "sweep"), []
    planned = sweep.begin(plan(25, 1, repeats=1), shown="sweep")
    todo = missing(planned, sweep, failed_again=False)
    with Stop().watching() as stop:
        submit(
            todo, Launch(script=["train.py"]), sweep, stop, said.append, cluster="debug", parameters={"timeout_min": 5}
        )
    assert {place: job.exit_code for place, job in sweep.ended().items()} == {(1, 1): 0, (2, 1): 3}
    assert "-S script.bucket_cap_mb=25" in sweep.log(sweep.path / "setting_001_run_01").read_text()
    assert said[0].startswith("2 jobs submitted")
    assert [line.partition(", job")[0] for line in said[1:]] == ["bucket_cap_mb=25, run 1", "bucket_cap_mb=1, run 1"]
    assert "failed with exit code 3" in said[2]
    assert missing(planned, sweep, failed_again=False) == []
