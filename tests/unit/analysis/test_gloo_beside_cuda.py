"""Compute on devices with gloo on hosts: the calls are exposed communication, and the late rank is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis.pipeline import analyze
from rankscope.records.report import ClusterReport
from rankscope.trace.files.load import load_traces

STEPS, TRANSFER, SAID = 6, 150, {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024}


class Rank:
    """Events of one rank, us."""

    def __init__(self, number: int) -> None:
        self.number, self.correlation, self.events = number, 0, list[dict[str, Any]]()

    def host(self, cat: str, name: str, ts: float, dur: float, tid: int = 9, **args: Any) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args}
        self.events.append(event)

    def device(self, cat: str, name: str, asked: float, ts: float, dur: float) -> None:
        self.correlation += 1
        call = "cudaLaunchKernel" if cat == "kernel" else "cudaMemcpyAsync"
        self.host("cuda_runtime", call, asked, 4, correlation=self.correlation)
        args = {"stream": 7, "correlation": self.correlation}
        event = {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}
        self.events.append(event)

    def write(self, folder: Path) -> None:
        group = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}
        about = {"distributedInfo": {"rank": self.number, "world_size": 2, "pg_config": [group]}}
        (folder / f"rank_{self.number}.json").write_text(json.dumps({**about, "traceEvents": self.events}))


def job(folder: Path, work: tuple[int, int], *, issuer: int = 9, said: bool = True) -> ClusterReport:
    """Each step: a kernel, its gradients to the host, an all-reduce of gloo, back to the device."""
    ranks, now = [Rank(0), Rank(1)], 100.0
    for step in range(STEPS):
        ends = [now + 12 + length + 21 for length in work]  # of the copies to the host
        arrive = [end + 9 for end in ends]
        done = max(arrive) + TRANSFER
        for rank, length, end, start in zip(ranks, work, ends, arrive, strict=True):
            rank.host("user_annotation", f"ProfilerStep#{step}", now, done + 60 - now)
            rank.device("kernel", "gemm", now + 5, now + 12, length)
            rank.device("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", now + 9, end - 20, 20)
            rank.host("cuda_runtime", "cudaStreamSynchronize", now + 14, end + 2 - now - 14)
            rank.host("cpu_op", "c10d::allreduce_", end + 4, 4, tid=issuer)
            if said:
                rank.host("cpu_op", "record_param_comms", end + 5, 2, tid=issuer, **SAID)
            rank.host("cpu_op", "gloo:all_reduce", start, done - start, tid=20)
            rank.host("cpu_op", "aten::copy_", done + 4, 16)
            rank.device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", done + 6, done + 14, 20)
        now = done + 60
    for rank in ranks:
        rank.write(folder)
    return analyze(load_traces([folder], workers=1, cache=False), hta=False)


@pytest.mark.parametrize("said", [True, False], ids=["with records", "without"])
def test_the_late_rank_is_named_with_its_cost(tmp_path: Path, said: bool) -> None:
    """Rank 1 computes 840 us where rank 0 computes 600: each step of 1092 us would take 240 less."""
    report = job(tmp_path, (600, 840), said=said)
    assert report.errors == []
    assert report.collectives.matched_pct == 100
    assert (report.verdict.ranks, report.verdict.step_ms) == ([1], pytest.approx(1.092, rel=0.01))
    assert report.verdict.cost_ms_per_step == pytest.approx(0.24, rel=0.1)
    # rank 0: 240 us of waiting and 150 of transfer in each step
    assert report.ranks[0].exposed_comm_pct == pytest.approx(100 * 390 / 1092, abs=1)
    assert report.ranks[1].exposed_comm_pct == pytest.approx(100 * 150 / 1092, abs=1)
    assert [row.wait_ms_per_step for row in report.ranks] == pytest.approx([0.24, 0.0], abs=0.001)
    assert [row.name for row in report.kernels if row.category == "communication"] == ["gloo:all_reduce"]


def test_equal_ranks_are_balanced(tmp_path: Path) -> None:
    report = job(tmp_path, (600, 602))
    assert report.verdict.ranks == []
    assert [row.exposed_comm_pct for row in report.ranks] == pytest.approx([100 * 151 / 854] * 2, abs=1)


def test_calls_of_a_thread_that_launches_nothing_are_no_part_of_the_step(tmp_path: Path) -> None:
    """A checkpoint's helper thread talks over gloo: the device's idle time is no communication."""
    report = job(tmp_path, (600, 840), issuer=30)
    assert [row.exposed_comm_pct for row in report.ranks] == [0, 0]
    assert list(report.collectives.unmatched) == ["on the host, not issued by a thread that launches device work"]
    assert report.verdict.ranks == []
