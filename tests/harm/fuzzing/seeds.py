"""A small valid run of two ranks on a device, from which mutated runs are made."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import random
from pathlib import Path
from typing import Any

from rankscope import cli
from rankscope.node.manifest import NodeResult
from rankscope.records.codec import to_json
from rankscope.records.manifest import RunManifest, WindowRanks
from rankscope.records.rank import ClockSample, HealthSample, HostSample, RankRecord, StepTimes
from rankscope.records.running.step_log import STEP_LOG_ENTRY_V1
from rankscope.records.spec import CaptureRequest
from rankscope.rundir.layout import RunDir
from rankscope.trace.files.load import load_traces

__all__ = ["make_run"]

STEPS = 4
BASE_NS = 1_790_857_026_000_000_000
STEP_US = 10_000


def make_run(folder: Path) -> RunDir:
    """A finished run: traces, records, run.json, step logs, memory snapshots, a report and the columns of a trace."""
    run = RunDir(folder)
    records = []
    for rank in (0, 1):
        run.window(0, 0).mkdir(parents=True, exist_ok=True)
        run.trace(0, 0, rank).write_bytes(gzip.compress(json.dumps(trace(rank)).encode(), 1, mtime=0))
        run.snapshot(0, 0, rank).write_bytes(pickle.dumps(snapshot(rank), 4))
        record = record_of(rank)
        run.record(0, 0, rank).write_text(to_json(record))
        records.append(record)
        run.step_log(0, rank).parent.mkdir(exist_ok=True)
        entries = (
            STEP_LOG_ENTRY_V1.pack(10_000 + 10 * rank + step % 7, 100, 3, step in range(13, 17)) for step in range(120)
        )
        run.step_log(0, rank).write_bytes(gzip.compress(b"".join(entries), 1, mtime=0))
    run.nodes.mkdir()
    run.node_claim("node_0").write_text(json.dumps({"run_id": "seed", "host": "a", "pid": 1}))
    run.node_result("node_0").write_text(to_json(NodeResult(node="node_0", host="a", lives=lives(), records=records)))
    run.request_folder.mkdir()
    run.request(0).write_text(to_json(CaptureRequest(name="request_0000", steps=4, warmup=1)))
    run.manifest.write_text(to_json(manifest_of(records)))
    load_traces([folder])  # leaves their columns beside the traces
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.main(["analyze", str(folder), "--no-hta", "--output", str(run.report)]) == 0
    return run


def lives() -> list[RankRecord]:
    return [
        RankRecord(rank=rank, local_rank=rank, world_size=2, host="a", pid=7, attempt=0, steps_counted=120)
        for rank in (0, 1)
    ]


def record_of(rank: int) -> RankRecord:
    return RankRecord(
        rank=rank, local_rank=rank, world_size=2, host="a", pid=7 + rank, attempt=0, window=0, device="NVIDIA H200",
        backend="nccl", step_source="optimizer", steps_counted=120, first_step=13, last_step=16, capture="kineto",
        planned_first_step=13, planned_last_step=16, agreed=True, gc_ms=1.5, cuda_used=True, open_window=None,
        trace=f"rank_{rank:05d}.trace.json.gz", snapshot=f"rank_{rank:05d}.memory.pickle", trace_bytes=1000,
        clock=[ClockSample(realtime_ns=BASE_NS + n * 10**9, monotonic_ns=n * 10**9) for n in (1, 2)],
        steps=StepTimes(before_ms=[10.0] * 8, inside_ms=[10.5] * 4, after_ms=[10.0] * 8, open_ms=2.0, close_ms=3.0),
        health=[HealthSample(time_ns=BASE_NS, device="GPU-1", sm_mhz=1980, power_w=133.5, throttle=["power"])] * 2,
        host_load=[HostSample(time_ns=BASE_NS, load_1m=1.5, cpus=8.0, throttled_ms=0.0, quota_periods=3)] * 2,
    )  # fmt: skip


def manifest_of(records: list[RankRecord]) -> RunManifest:
    return RunManifest(
        run_id="seed", argv=["rankscope", "run", "train.py"], config={"capture": {"backend": "auto"}},
        versions={"torch": "2.13.0"}, hosts=["a"], world_size=2, attempts=1, exit_code=0, lives=lives(),
        windows=[WindowRanks(attempt=0, window=0, world_size=2, records=records)],
    )  # fmt: skip


def trace(rank: int) -> dict[str, Any]:
    """Four steps of host operators, launches, kernels, a copy, an all-reduce and an allocation."""
    rng = random.Random(rank)
    pid, events, correlation = 1470 + rank, [], 0

    def add(cat: str, name: str, start: float, dur: float, *, on: tuple[int, int], **args: Any) -> None:
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": on[0], "tid": on[1], "ts": start, "dur": dur, "args": args}
        )

    for step in range(STEPS):
        begin = 5e6 + step * STEP_US
        add("user_annotation", f"ProfilerStep#{13 + step}", begin, STEP_US - 100, on=(pid, pid))
        add(
            "user_annotation",
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            begin + 10,
            200,
            on=(pid, pid),
        )
        for layer in range(6):
            at = begin + 300 + layer * 700 + rng.random() * 50 + 60 * rank
            correlation += 1
            dims = [[64, 128], [128, 256]]
            add("cpu_op", "aten::mm", at, 60, on=(pid, pid), **{"External id": correlation, "Input Dims": dims})
            add("cuda_runtime", "cudaLaunchKernel", at + 20, 10, on=(pid, pid), correlation=correlation)
            add(
                "kernel",
                f"gemm_{layer}",
                at + 50,
                500,
                on=(0, 7),
                stream=7,
                correlation=correlation,
                grid=[16, 8, 1],
                block=[128, 1, 1],
            )
        correlation += 1
        at = begin + 5000
        add("cuda_runtime", "cudaMemcpyAsync", at, 10, on=(pid, pid), correlation=correlation)
        add(
            "gpu_memcpy",
            "Memcpy HtoD (Pinned -> Device)",
            at + 20,
            40,
            on=(0, 7),
            stream=7,
            correlation=correlation,
            bytes=2097152,
            **{"memory bandwidth (GB/s)": 51.5},
        )
        correlation += 1
        add("cuda_runtime", "cudaLaunchKernel", at + 100, 10, on=(pid, pid), correlation=correlation)
        said = {
            "Collective name": "allreduce", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": step,
            "Process Group Description": "default_pg", "Group size": 2, "In msg nelems": 4096, "Out msg nelems": 4096,
            "dtype": "Float", "stream": 20, "correlation": correlation,
        }  # fmt: skip
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        add("kernel", name, at + 200 + 60 * rank, 900 - 60 * rank, on=(0, 20), **said)
        add("cuda_sync", "Stream Sync", at + 1200, 300, on=(0, 1000007), stream=7, correlation=correlation)
        memory = {
            "Device Type": 1,
            "Device Id": 0,
            "Bytes": 4096,
            "Total Allocated": 1 << 20,
            "Total Reserved": 1 << 22,
        }
        events.append(
            {"ph": "i", "s": "t", "name": "[memory]", "pid": pid, "tid": pid, "ts": begin + 400, "args": memory}
        )
        events.append({"ph": "M", "name": "process_name", "pid": pid, "ts": begin, "args": {"name": "python"}})
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
        "rankscope": {"rank": rank, "world_size": 2, "torch": "2.13.0", "host": "a"},
        "distributedInfo": {
            "backend": "nccl", "rank": rank, "world_size": 2, "pg_count": 1,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}],
        },
        "host_name": "a",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": events,
        "traceName": "seed.json",
    }  # fmt: skip


def snapshot(rank: int) -> dict[str, Any]:
    """An allocator's history of some blocks that come and go."""
    frames = [{"filename": "/home/user/model.py", "line": 10, "name": "forward"}]
    at = (BASE_NS // 1000) + 5_000_000
    history = [{"action": "segment_alloc", "addr": 1 << 28, "size": 1 << 21, "stream": 0, "time_us": at}]
    for n in range(12):
        one = {"addr": (1 << 28) + n * 4096, "size": 4096, "stream": 0, "time_us": at + n * 900}
        history.append({**one, "action": "alloc", "frames": frames})
        if n % 3:
            history += [{**one, "action": "free_requested"}, {**one, "action": "free_completed"}]
    blocks = [
        {
            "size": 4096,
            "requested_size": 4096,
            "state": "active_allocated" if n % 3 == 0 else "inactive",
            "frames": frames,
        }
        for n in range(12)
    ]
    segment = {
        "device": 0,
        "address": 1 << 28,
        "total_size": 1 << 21,
        "stream": 0,
        "segment_type": "large",
        "blocks": blocks,
    }
    about = {"rank": rank, "attempt": 0, "window": 0, "complete": True}
    return {"segments": [segment], "device_traces": [history], "rankscope": about}
