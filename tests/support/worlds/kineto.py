"""Write a run as the traces that PyTorch's profiler would have made of it (Kineto's Chrome JSON, one text a rank)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from .engine import COMPUTE, Ran, Run
from .jobs import Mesh

__all__ = ["Recording", "traces"]

MAIN, DEVICE = 1000, 7
_NCCL = {"allreduce": "AllReduce_Sum_f32_RING_LL", "all_gather": "AllGather_RING_LL",
         "reduce_scatter": "ReduceScatter_Sum_f32_RING_LL", "all_to_allv": "SendRecv", "send": "SendRecv",
         "recv": "SendRecv", "ring": "SendRecv"}  # fmt: skip
_LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
BASE_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Recording:
    """How a run was recorded."""

    first: int = 1
    """First step recorded."""
    last: int = 6
    """Last step recorded, inclusive."""
    clock_ms: float = 0.0
    """Clocks of hosts differ by up to so much."""
    drift_ppm: float = 0.0
    per_host: int = 8
    whole_us: bool = False
    shifted: tuple[int, ...] = ()
    """Ranks that recorded one step later than the others."""
    p2p_metadata: bool = True
    seq: bool = True


def traces(run: Run, mesh: Mesh, how: Recording, seed: int) -> list[str]:
    """JSON text of every rank. Clocks are drawn by ``seed``, one for each host."""
    rng = np.random.default_rng([seed, 7])
    hosts = -(-mesh.size // how.per_host)
    offsets = np.round(rng.uniform(-1, 1, hosts) * how.clock_ms * 1e6).astype(np.int64)
    drifts = rng.uniform(-1, 1, hosts) * how.drift_ppm * 1e-6
    return [
        _trace(run, mesh, rank, how, int(offsets[rank // how.per_host]), float(drifts[rank // how.per_host]))
        for rank in range(mesh.size)
    ]


def _trace(run: Run, mesh: Mesh, rank: int, how: Recording, offset: int, drift: float) -> str:
    later = int(rank in how.shifted)
    first, last = how.first + later, how.last + later

    def us(ns: int) -> float:
        local = (ns + offset + int(ns * drift)) / 1000.0
        return float(round(local)) if how.whole_us else round(local, 3)

    events: list[dict[str, Any]] = []
    streams: dict[str, int] = {COMPUTE: DEVICE}
    counts: dict[str, int] = {}

    def add(name: str, cat: str, begin: int, end: int, tid: int, args: dict[str, Any], pid: int = MAIN) -> None:
        start, stop = us(begin), us(end)
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start,
                       "dur": round(stop - start, 3), "args": args})  # fmt: skip

    for step in range(first, last + 1):
        begin, end = run.marks[rank][step]
        add(f"ProfilerStep#{step}", "user_annotation", begin, end, MAIN, {"External id": 10**6 + step})
    for number, ran in enumerate(run.ranks[rank]):
        kind = ran.op.what
        if kind in {"call", "pair", "ring"}:
            counts[ran.op.axis] = counts.get(ran.op.axis, 0) + 1
        if not first <= ran.step <= last:
            continue
        host = _operator_begins(ran)
        if kind == "input":
            add(_LOADER, "user_annotation", host, ran.end, MAIN, {})
        elif kind == "host":
            add(ran.op.name, "cpu_op", host, ran.end, MAIN, {"External id": number})
        elif kind == "join":
            add("cudaStreamWaitEvent", "cuda_runtime", ran.end - 900, ran.end, MAIN, {"correlation": 4 * number + 1})
        elif kind == "sync":
            add(ran.op.name, "cpu_op", host, ran.end, MAIN, {"External id": number})
            add("cudaStreamSynchronize", "cuda_runtime", ran.issued, ran.end, MAIN, {"correlation": 4 * number + 1})
        elif kind == "kernel":
            args = {"External id": number, "Input Dims": [list(ran.op.shape)], "Input type": ["float"]}
            add(f"aten::{ran.op.name}", "cpu_op", host, ran.end, MAIN, args)
            grid = {"grid": [max(ran.op.shape[0] // 128, 1), len(ran.op.shape), 1], "block": [128, 1, 1]}
            _launched(add, ran, number, rank, streams, _KERNEL.get(ran.op.name, ran.op.name), grid)
        elif kind in {"call", "pair", "ring"}:
            add(f"c10d::{ran.op.kind}_", "cpu_op", host, ran.end, MAIN, {"External id": number})
            says = _says(ran, mesh, counts[ran.op.axis], how)
            record = {**says, "External id": number}
            batched = kind == "ring" and how.p2p_metadata
            if batched:
                for piece, at in zip(_pieces(ran, says, rank), (3000, 2300), strict=True):
                    add("record_param_comms", "cpu_op", ran.issued - at, ran.issued - at + 500, MAIN, piece)
                add("nccl:coalesced", "user_annotation", ran.issued - 1700, ran.end + 100, MAIN, {})
            else:
                add("record_param_comms", "cpu_op", ran.issued - 1500, ran.end, MAIN, record)
            bare = batched or (kind != "call" and not how.p2p_metadata)
            name = f"ncclDevKernel_{_NCCL[ran.op.kind]}(ncclDevKernelArgsStorage<4096ul>)"
            add("cudaStreamWaitEvent", "cuda_runtime", ran.issued - 1200, ran.issued - 500, MAIN,
                {"correlation": 4 * number + 2})  # fmt: skip
            _launched(add, ran, number, rank, streams, name, {} if bare else says)
    groups = _groups(mesh, rank)
    return json.dumps(
        {
            "schemaVersion": 1,
            "deviceProperties": [{"id": rank % how.per_host, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": mesh.size, "pg_count": len(groups),
                                "pg_config": groups, "nccl_version": "2.27.3"},
            "baseTimeNanoseconds": BASE_NS,
            "displayTimeUnit": "ms",
            "host_name": f"host{rank // how.per_host}",
            "traceEvents": events,
        }
    )  # fmt: skip


_KERNEL = {
    "mm": "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32",
    "mm_grad_input": "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32",
    "mm_grad_weight": "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32",
    "gelu": "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>",
    "multi_tensor_apply": "void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor>",
    "flash_attention": "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits>",
}


def _operator_begins(ran: Ran) -> int:
    """Where the operator's own range begins: a gap of the interpreter comes before it."""
    return ran.begin + min((ran.issued - ran.begin) // 3, 5000) if ran.issued > ran.begin else ran.begin


def _launched(
    add: Any, ran: Ran, number: int, rank: int, streams: dict[str, int], name: str, says: dict[str, Any]
) -> None:
    stream = streams.setdefault(ran.op.stream, DEVICE + 6 + 4 * len(streams))
    correlation = {"correlation": 4 * number, "External id": number}
    add("cudaLaunchKernel", "cuda_runtime", ran.issued, ran.end, MAIN, dict(correlation))
    device = rank % 8
    shown = {**says, **correlation, "device": device, "stream": stream, "context": 1}
    add(name, "kernel", ran.start, ran.stop, stream, shown, pid=device)


def _says(ran: Ran, mesh: Mesh, number: int, how: Recording) -> dict[str, Any]:
    op = ran.op
    says: dict[str, Any] = {
        "Process Group Name": _name(mesh, op.axis), "Process Group Description": f"mesh_{op.axis}",
        "Group size": len(op.group), "Process Group Ranks": _ranks(op.group), "dtype": "Float",
    }  # fmt: skip
    if op.what == "call":
        says |= {"Collective name": op.kind, "In msg nelems": op.elements, "Out msg nelems": op.out_elements}
        if how.seq:
            says["Seq"] = number
    elif how.p2p_metadata and op.what == "pair":
        says |= {"Collective name": op.kind, "In msg nelems": op.elements, "Out msg nelems": op.elements}
        says["Dst Rank" if op.kind == "send" else "Src Rank"] = op.group.index(op.peer)
    else:
        says |= {"Collective name": "nccl:coalesced" if op.what == "ring" or not how.p2p_metadata else op.kind,
                 "In msg nelems": 0, "Out msg nelems": 0}  # fmt: skip
    return says


def _pieces(ran: Ran, says: dict[str, Any], rank: int) -> list[dict[str, Any]]:
    """The records of a send and a receive that are launched as one (``nccl:coalesced``)."""
    group, place = ran.op.group, ran.op.group.index(rank)
    size = {"In msg nelems": ran.op.elements, "Out msg nelems": ran.op.elements}
    return [
        {**says, **size, "Collective name": "send", "Dst Rank": (place + 1) % len(group)},
        {**says, **size, "Collective name": "recv", "Src Rank": (place - 1) % len(group)},
    ]


def _ranks(group: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, group[:30])) + (", ...]" if len(group) > 30 else "]")


def _name(mesh: Mesh, axis: str) -> str:
    return str(mesh.axes.index(axis) + 1)


def _groups(mesh: Mesh, rank: int) -> list[dict[str, Any]]:
    everyone = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": mesh.size,
                "ranks": list(range(mesh.size))}  # fmt: skip
    own = [
        {"pg_name": _name(mesh, axis), "pg_desc": f"mesh_{axis}", "backend_config": "cuda:nccl",
         "pg_size": len(mesh.group(rank, axis)), "ranks": list(mesh.group(rank, axis))}
        for axis in mesh.axes
    ]  # fmt: skip
    return [everyone, *own]
