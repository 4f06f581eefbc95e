"""A small job of known truth, written as traces of its ranks: two pieces of work and two collectives a step.

The host launches in order, the device runs in order, a collective ends on all ranks a transfer after the last arrival,
and a synchronisation ends each step. All ranks are on one clock. Times are us.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BASE = 1_790_000_000_000_000_000
TRANSFER = 60.0
GEMM, NCCL = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL()"


@dataclass
class Job:
    """``work``: us of each of the two pieces of work of a rank's step; others take 400."""

    ranks: int = 3
    steps: int = 6
    work: Mapping[int, float] = field(default_factory=dict)
    begin: Mapping[int, float] = field(default_factory=dict)
    """Time at which the recording of a rank begins, us."""
    collective_first: bool = False
    events: dict[int, list[dict[str, Any]]] = field(init=False)
    heads: dict[int, dict[str, Any]] = field(init=False)
    first_step_us: float = field(init=False)
    """Time from the last rank's begin of a step to the end of the step, us."""
    step_us: float = field(init=False)
    """Duration of every later step on all ranks, us."""

    def __post_init__(self) -> None:
        self.events = {r: [] for r in range(self.ranks)}
        members = list(range(self.ranks))
        group = {"pg_name": "0", "pg_desc": "default_pg", "ranks": members}
        job = {"world_size": self.ranks, "pg_config": [group]}
        self.heads = {r: {"baseTimeNanoseconds": BASE, "distributedInfo": {"rank": r} | job} for r in members}
        host = [100.0 + self.begin.get(r, 0.0) for r in members]
        self.correlation = 100
        self.seq = 0
        ends = []
        for step in range(self.steps):
            begun, device = list(host), list(host)
            for r in members:
                host[r] += 6.0
            order = ["comm", "work", "comm", "work"] if self.collective_first else ["work", "comm", "work", "comm"]
            for what in order:
                self._collective(host, device) if what == "comm" else self._work(host, device)
            for r in members:
                self._host(r, "cuda_runtime", "cudaDeviceSynchronize", host[r], device[r] + 2 - host[r])
                host[r] = device[r] + 5
                self._host(r, "user_annotation", f"ProfilerStep#{10 + step}", begun[r], host[r] - begun[r])
            ends.append(max(host))
        self.first_step_us = ends[0] - 100.0 - max([0.0, *self.begin.values()])
        self.step_us = ends[1] - ends[0] if self.steps > 1 else self.first_step_us

    def _host(self, rank: int, cat: str, name: str, ts: float, dur: float, **args: Any) -> None:
        self.events[rank].append(event(cat, name, 4200 + rank, 4200 + rank, ts, dur, args))

    def _launch(self, rank: int, name: str, host: list[float]) -> float:
        self._host(rank, "cuda_runtime", name, host[rank], 4.0, correlation=self.correlation)
        host[rank] += 8.0
        return host[rank] - 2.0

    def _kernel(self, rank: int, name: str, ts: float, dur: float, **args: Any) -> None:
        args |= {"device": 0, "stream": 7, "correlation": self.correlation}
        self.events[rank].append(event("kernel", name, 0, 7, ts, dur, args))

    def _work(self, host: list[float], device: list[float]) -> None:
        self.correlation += 1
        for r in range(self.ranks):
            start = max(device[r], self._launch(r, "cudaLaunchKernel", host))
            device[r] = start + self.work.get(r, 400.0)
            self._kernel(r, GEMM, start, device[r] - start)

    def _collective(self, host: list[float], device: list[float]) -> None:
        self.correlation += 1
        starts = [max(device[r], self._launch(r, "cudaLaunchKernelExC", host)) for r in range(self.ranks)]
        end = max(starts) + TRANSFER
        for r, start in enumerate(starts):
            said = {
                "Collective name": "allreduce",
                "In msg nelems": 1048576,
                "Out msg nelems": 1048576,
                "dtype": "BFloat16",
                "Group size": self.ranks,
                "Process Group Name": "0",
                "Process Group Ranks": str(list(range(self.ranks))),
                "Seq": self.seq,
            }
            self._kernel(r, NCCL, start, end - start, **said)
            device[r] = end
        self.seq += 1

    def drop(self, rank: int, wanted: Callable[[dict[str, Any]], bool]) -> Job:
        """Remove events of a rank, as if their records were lost."""
        self.events[rank] = [e for e in self.events[rank] if not wanted(e)]
        return self

    def without_marks(self, *ranks: int) -> Job:
        """Drop the step marks of some ranks, by default of all."""
        for rank in ranks or range(self.ranks):
            self.drop(rank, lambda e: e["name"].startswith("ProfilerStep#"))
        return self

    def write(self, folder: Path) -> Path:
        """Write one file per rank; return the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank, events in self.events.items():
            (folder / f"rank{rank}.json").write_text(json.dumps(self.heads[rank] | {"traceEvents": events}))
        return folder


def event(cat: str, name: str, pid: int, tid: int, ts: float, dur: float, args: dict[str, Any]) -> dict[str, Any]:
    """Return one complete event of Kineto."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernels(job: Job, rank: int) -> list[dict[str, Any]]:
    """Return the device work of a rank in order."""
    return [e for e in job.events[rank] if e["cat"] == "kernel"]
