"""Identity of a process from the variables that each launcher sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.rank_identity import Identity, identity_from, identity_key

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "job", "MASTER_ADDR": "a", "MASTER_PORT": "29500",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "n", "PMIX_RANK": "1", "OMPI_MCA_orte_hnp_uri": "u",
}  # fmt: skip
SLURM = {
    "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "7", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "4,3", "SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TORCHRUN, Identity("torchrun", 3, 4, 1, 2, 2, "job a 29500")),
        (OPEN_MPI, Identity("mpirun (Open MPI)", 1, 2, 1, 2, None, "n u")),
        (SLURM, Identity("srun", 5, 7, 1, 3, 2, "9 0")),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_PORT": "h:1"}, Identity("mpiexec (Hydra)", 0, 2, job="h:1")),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, Identity("mpirun (MVAPICH2)", 1, 2)),
        ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "n"}, Identity("PMIx", 1, job="n")),
        ({"RANK": "0", "WORLD_SIZE": "2"}, Identity("torchrun", 0, 2)),
    ],
)
def test_each_launcher_in_its_own_words(environ, expected):
    assert identity_from(environ) == expected


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": ""},
        {"RANK": "first"},
        {"RANK": "-1"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "9"},  # a batch script, no task of a step
    ],
)
def test_nothing_is_guessed(environ):
    assert identity_from(environ) is None


def test_the_nearest_launcher_says_the_rank():
    both = identity_from({**SLURM, **OPEN_MPI, **TORCHRUN})
    assert both is not None
    assert (both.launcher, both.rank) == ("torchrun", 3)
    assert identity_key(both) == "torchrun 3/4"
    assert identity_key(None) == ""


@pytest.mark.parametrize(
    ("environ", "several"),
    [
        (TORCHRUN, True),
        ({**TORCHRUN, "GROUP_WORLD_SIZE": "1"}, False),
        (OPEN_MPI, False),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, True),
        (SLURM, True),
        ({"RANK": "0", "WORLD_SIZE": "2"}, False),
    ],
)
def test_whether_there_are_other_nodes(environ, several):
    found = identity_from(environ)
    assert found is not None
    assert found.several_nodes is several


@pytest.mark.parametrize(
    ("tasks", "node", "here"), [("4(x2),3", "0", 4), ("4(x2),3", "1", 4), ("4(x2),3", "2", 3), ("odd", "0", None)]
)
def test_slurms_list_of_tasks(tasks, node, here):
    found = identity_from({**SLURM, "SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_NODEID": node})
    assert found is not None
    assert found.local_world_size == here


def test_the_launcher_is_the_nearest_ancestor_that_was_not_told_this_rank():
    # GIVEN a rank behind two shells that were told the same
    ask = "from rankscope.rank_identity import *; import os; print(launcher_process(identity_from(os.environ)))"
    command = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, ask]
    environ = {**os.environ, "PMI_RANK": "1", "PMI_SIZE": "2"}
    for name in ("RANK", "WORLD_SIZE"):
        environ.pop(name, None)
    said = subprocess.run(["sh", "-c", '"$@"; true', "sh", *command], env=environ, capture_output=True, text=True)
    begun = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    assert said.stdout.startswith(f"process {os.getpid()} begun {begun} boot "), said
