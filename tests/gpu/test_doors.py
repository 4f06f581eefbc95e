"""The doors on a GPU: ranks share one device under NCCL, which sees a different host name for each.

DOORS_DEVICE=cpu tries the test itself where there is no GPU.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator

import pytest
import torch

from doors.doors import DOORS
from doors.launches import Launches
from support.launching import must_tell

DEVICE = os.environ.get("DOORS_DEVICE", "cuda")
RANKS = 4
ENV = {
    "DOORS_DEVICE": DEVICE,
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
}
"""Deterministic products of matrices, and NCCL by sockets, as between hosts."""
JOBS = {"ranked.py", "spawned.py", "attached.py"}
"""Those that know of devices; their doors need no framework."""
pytestmark = [
    pytest.mark.doors,
    pytest.mark.long,
    pytest.mark.timeout(850),
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> list[str]:
    """What ranks leave without rankscope. Two launchers agree, so what differs by a door would be its own doing."""
    left = []
    for door in (next(d for d in DOORS if d.job == job) for job in ("ranked.py", "spawned.py")):
        launches = Launches(door, tmp_path_factory.mktemp("bare"), ranks=RANKS, env=ENV)
        try:
            left.append(launches.left(recorded=False))
        finally:
            launches.end_all()
    assert left[0] == left[1]
    assert len(set(left[0])) == 1  # DDP keeps the ranks alike
    return left[0]


@pytest.fixture(scope="module", params=[pytest.param(d, id=d.name) for d in DOORS if d.job in JOBS])
def launches(request, tmp_path_factory) -> Iterator[Launches]:
    if (why := request.param.missing()) is not None:
        pytest.skip(why)
    launches = Launches(request.param, tmp_path_factory.mktemp("door"), ranks=RANKS, env=ENV)
    yield launches
    launches.end_all()


def test_training_is_the_same_to_the_last_bit(launches: Launches, bare: list[str]) -> None:
    assert launches.left(recorded=True) == bare


def test_window_on_all_ranks_with_the_right_steps(launches: Launches) -> None:
    (window,) = launches.manifest().windows
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    assert [(r.rank, r.world_size, r.status, r.first_step, r.last_step, r.backend) for r in window.records] == [
        (rank, RANKS, "ok", 4, 8, backend) for rank in range(RANKS)
    ]


def test_each_rank_has_its_own_kernels(launches: Launches) -> None:
    if DEVICE != "cuda":
        pytest.skip("no kernels on a CPU")
    launches.manifest()
    for rank in range(RANKS):
        with gzip.open(launches.run_dir("ok").trace(0, 0, rank)) as stream:
            trace = json.load(stream)
        assert trace["distributedInfo"]["rank"] == rank
        kernels = [e["name"] for e in trace["traceEvents"] if e.get("cat") == "kernel"]
        # DDP sums this model's gradients in one call a step; of a device that lags there may be calls of earlier steps
        assert len([name for name in kernels if name.startswith("ncclDevKernel_AllReduce")]) >= 5, (rank, kernels)


def test_the_late_rank_is_named(launches: Launches) -> None:
    report = launches.report()
    must_tell(report, "straggler", [1], report.verdict.cause)
