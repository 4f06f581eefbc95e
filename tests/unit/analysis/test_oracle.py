"""Shares and waits of every recorded window agree with an independent computation (tests/support/oracle.py).

Of other folders too: ``RANKSCOPE_ORACLE=/traces/a:/traces/b pytest tests/unit/analysis/test_oracle.py``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.trace.files.load import load_traces
from support import oracle

from .conftest import DATA

MORE = [Path(folder) for folder in os.environ.get("RANKSCOPE_ORACLE", "").split(":") if folder]
FOLDERS = sorted(folder for folder in (DATA / "traces").iterdir() if folder.is_dir()) + MORE
LIKE_ANOTHER = ("ddp_gpu_bound", "ddp_healthy", "ddp_slow_gpu", "fsdp2_gpu_bound", "fsdp2_slow_gpu")
"""Of the same job as one that is looked at every day; they are among the largest."""


def of(folder: Path) -> object:
    return pytest.param(folder, marks=[pytest.mark.long] if folder.name in LIKE_ANOTHER else [], id=folder.name)


@pytest.mark.data
@pytest.mark.parametrize("folder", [of(folder) for folder in FOLDERS])
def test_shares_and_waits_are_those_of_their_definitions(folder: Path) -> None:
    ranks = oracle.window(sorted(p for p in folder.iterdir() if p.name.startswith("rank_") and ".json" in p.name))
    report = analyze(load_traces([folder], workers=1, cache=False), hta=False)
    rows = {row.rank: row for row in report.ranks}
    assert sorted(rows) == sorted(rank.number for rank in ranks)
    offsets = {int(rank): offset for rank, offset in report.clock.offsets_us.items()}
    oracle.recorded_together(ranks, offsets)
    for rank in ranks:
        row = rows[rank.number]
        assert row.steps == len(rank.steps)
        for share, truth in rank.shares().items():
            assert getattr(row, share) == pytest.approx(truth, abs=0.1), share
    if len(ranks) > 2 and any("SendRecv" in call.key[1] for rank in ranks for call in rank.calls):
        return  # who talks to whom is no part of the oracle
    truth = oracle.waits(ranks, offsets)
    assert truth.calls > 0
    for number, waited in truth.waited.items():
        assert rows[number].wait_ms_per_step == pytest.approx(waited, rel=1e-3, abs=1e-4)


def write(path: Path, rank: int, late: int) -> Path:
    """Two steps of 1 ms: 300 us of compute, an all-reduce until 700, 600 to 650 of it under a kernel, a copy to 750."""

    def event(cat: str, name: str, ts: int, dur: int, **args: int) -> dict[str, object]:
        where = {"pid": 0, "tid": 7} if cat in {"kernel", "gpu_memcpy"} else {"pid": 9, "tid": 9}
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args, **where}

    events = []
    for step in range(2):
        at = 1000 * step
        arrive = at + 400 + late
        events += [
            event("user_annotation", f"ProfilerStep#{step}", at, 1000),
            event("cuda_runtime", "cudaLaunchKernel", at + 10, 5, correlation=10 * step + 1),
            event("cuda_runtime", "cudaLaunchKernel", at + 20, 5, correlation=10 * step + 2),
            event("cuda_runtime", "cudaLaunchKernel", at + 30, 5, correlation=10 * step + 3),
            event("cuda_runtime", "cudaMemcpyAsync", at + 40, 5, correlation=10 * step + 4),
            event("kernel", "gemm", at + 100, 300, stream=7, correlation=10 * step + 1),
            event("kernel", "ncclDevKernel_AllReduce", arrive, at + 700 - arrive, stream=9, correlation=10 * step + 2),
            event("kernel", "gemm", at + 600, 50, stream=7, correlation=10 * step + 3),
            event("gpu_memcpy", "Memcpy DtoH", at + 690, 60, stream=8, correlation=10 * step + 4),
        ]
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}]
    about = {"distributedInfo": {"rank": rank, "world_size": 2, "pg_config": groups}}
    path.write_text(json.dumps({**about, "traceEvents": events}))
    return path


def test_the_oracle_itself_on_a_window_by_hand(tmp_path: Path) -> None:
    ranks = oracle.window([write(tmp_path / f"rank_{rank}.json", rank, late=100 * rank) for rank in range(2)])
    assert ranks[0].shares() == pytest.approx(
        {
            "compute_pct": 35,
            "comm_pct": 30,
            "exposed_comm_pct": 25,
            "memcpy_pct": 5,
            "idle_pct": 35,
            "overlap_pct": 50 / 3,
        }
    )
    assert oracle.waits(ranks, {}).waited == pytest.approx({0: 0.1, 1: 0.0})
    assert oracle.waits(ranks, {1: -150.0}).waited == pytest.approx({0: 0.0, 1: 0.05})
    report = analyze(load_traces([tmp_path], workers=1, cache=False), hta=False)
    assert [row.exposed_comm_pct for row in report.ranks] == pytest.approx([25, 15])
    assert [row.wait_ms_per_step for row in report.ranks] == pytest.approx([0.1, 0.0])
