"""A run that contains a marker word in every place that can hold text."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
import pickle
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from rankscope.limits import Between
from rankscope.records.manifest import RunManifest
from rankscope.records.rank import RankRecord
from rankscope.records.running.step_log import (
    STEP_LOG_COLUMNS,
    STEP_LOG_ENTRY,
    STEP_LOG_HEADER,
    STEP_LOG_MAGIC,
    STEP_LOG_VERSION,
)

WORD = "ZquonkVexil"
NUMBER = 48_611
"""A dimension, a line, part of an address: no number that anything else here comes to."""
PID = 3_141_592
ADDRESS = 0x7F5A_DEAD_0000
BASE = 1_700_000_000_000_000_000


def record(cls: Any) -> Any:
    """Return a record with the word in every text, at any depth."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return cls(**{field.name: _value(hints[field.name], field.name) for field in dataclasses.fields(cls)})


def _value(hint: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return record(hint)
    if origin in (typing.Union, types.UnionType):
        return _value(next(a for a in arguments if a is not type(None)), name)
    if origin is Annotated:
        bounds = next((a for a in arguments[1:] if isinstance(a, Between)), None)
        return f"{WORD}_{name}" if bounds is None else min(bounds.most, 2)
    if origin is Literal:
        return arguments[0]
    if origin is list:
        return [_value(arguments[0], name)]
    if origin is dict:
        inner = {"schedule": {WORD: 1, "wait": 1, "mode": WORD}} if arguments[1] is Any else {}
        return {f"{WORD}_key": _value(arguments[1], name), **inner}
    if hint is str or hint is Any:
        return f"{WORD}.{name} /home/{WORD}"
    return {int: 7, float: 1.5, bool: True}[hint]


def event(**given: Any) -> dict[str, Any]:
    """Return an event with the word and the number in every field of its arguments, known or not."""
    fields = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": PID, "tid": PID, "ts": 10.0, "dur": 5.0} | given
    more = ("Call stack", "Module Hierarchy", "Concrete Inputs", "Input type", "Input Strides", "kernel_file", "Addr")
    args = {key: f"{WORD} {key}" for key in (*_known(), *more)} | {f"{WORD}": [WORD], "ptr": hex(ADDRESS)}
    args |= {"Input Dims": [[NUMBER, 2], [], WORD, [[NUMBER]]], "grid": [NUMBER, 1, 1], "block": [WORD]}
    return fields | {"args": args, "id": WORD, "cname": WORD, "sf": NUMBER, "stack": [WORD], WORD: WORD}


@functools.cache
def _known() -> list[str]:
    from rankscope.privacy.files.events import Arguments

    return [field.encode_name for field in msgspec.structs.fields(Arguments)]


CATEGORIES = (
    *("cpu_op", "user_annotation", "gpu_user_annotation", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime"),
    *(
        "cuda_driver",
        "cuda_sync",
        "overhead",
        "python_function",
        "Trace",
        "Operator",
        "xpu_runtime",
        WORD,
        f"{WORD}_kernel",
    ),
)
NAMES = (
    WORD,
    f"aten::{WORD}",
    f"{WORD}::forward",
    f"{WORD}Backward0",
    f"{WORD}Backward",
    f"autograd::engine::evaluate_function: {WORD}Backward",
    f"FSDP::all_gather ({WORD}.3.{WORD}_mlp)",
    f"FSDP::{WORD}",
    f"Optimizer.step#{WORD}.step",
    f"## Call CompiledFxGraph {WORD} ##",
    f"{WORD}_data: compile_id=0/0",
    f"gc_data: fn={WORD}, compile_id=0/0",
    f"enumerate(DataLoader)#{WORD}.__next__",
    f"[pl]train_{WORD}_dataloader",
    f"ProfilerStep#1 {WORD}",
    f"nccl:{WORD}",
    f"nccl:all_reduce {WORD}",
    f"void {WORD}::kernel<{NUMBER}>(int)",
    f"void at::native::vectorized_elementwise_kernel<4, {WORD}::Op<{NUMBER}, float>, std::array<char*> >({WORD})",
    f"void at::native::(anonymous namespace)::elementwise<{WORD}(at::Tensor)::{{lambda(float)#1}}>(int)",
    f"std::enable_if<true, void>::type {WORD}<{NUMBER}>()",
    f"ncclDevKernel_AllReduce_{WORD}(ncclDevKernelArgsStorage<4096ul>)",
    f"ncclDevKernel_AllReduce_Sum_f32_RING_LL({WORD}<4096ul>)",
    f"triton_poi_fused_add_{WORD}_0",
    f"nvjet_{WORD}_128x64",
    f"ampere_{WORD}gemm_128x128_nn",
    f"_ZN5{WORD}3fooEv",
    f"flash_{WORD}_fwd_kernel",
    f"{WORD}_all_reduce_kernel",
    f"vllm::{WORD}",
    f"cudaLaunchKernel_{WORD}",
    f"Memcpy HtoD ({WORD} -> Device)",
    f"7{WORD}",
    f'{WORD} \u00e4\U0001f600 "quoted" \\ back',
    {WORD: WORD},
    [WORD],
    f"{WORD}" * 3000,
)


def trace(rank: int) -> dict[str, Any]:
    """Return a valid trace of one rank with the word wherever a trace can have text."""
    events: list[Any] = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{n}",
            "pid": PID,
            "tid": PID,
            "ts": 1000.0 * n,
            "dur": 990.0,
        }
        for n in range(1, 4)
    ]
    events += [
        event(
            cat=category, name=name, ts=1000.0 + 2 * place, pid=f"{WORD} {place % 3}" if category == "overhead" else PID
        )
        for place, (category, name) in enumerate((c, n) for c in CATEGORIES for n in NAMES)
    ]
    events += [{"ph": "M", "name": key, "pid": PID, "tid": WORD, "ts": 0,
                "args": {"name": WORD, "labels": f"{WORD} GPU"}}
               for key in ("process_name", "process_labels", "thread_name", WORD)]  # fmt: skip
    events += [{"ph": "M", "name": "thread_name", "pid": PID, "tid": 1, "args": {"name": f"thread {PID} ({WORD})"}}]
    events += [{"ph": p, "cat": c, "name": WORD, "id": WORD, "bp": WORD, "pid": PID, "tid": PID,
                "ts": 1001.0, "s": WORD}
               for p in "sftiICbenNODXBE" for c in ("ac2g", "fwdbwd", WORD, None)]  # fmt: skip
    events += [{"ph": "i", "name": "[memory]", "s": WORD, "pid": PID, "tid": PID, "ts": 1002.0,
                "args": {"Bytes": 512, "Device Type": 1, "Device Id": 0, "Addr": ADDRESS, "Total Allocated": 1024,
                         "Total Reserved": 2048, WORD: WORD}}]  # fmt: skip
    events += [WORD, [WORD], {"name": WORD}, {"ph": WORD, "name": WORD}, {"ph": 7}, None, 5]
    known = (
        "traceName",
        "trace_id",
        "host_name",
        "hostname",
        "host",
        "displayTimeUnit",
        "cuda_driver_version",
        "torch_version",
    )
    return {
        "schemaVersion": 1,
        **{key: f"{WORD} {key}" for key in known},
        WORD: {WORD: [WORD]},
        "deviceProperties": [{"id": 0, "name": f"NVIDIA {WORD}\n", "uuid": WORD, WORD: WORD}, WORD],
        "distributedInfo": {
            "rank": rank, "world_size": 2, "backend": WORD, "nccl_version": f"2.28.9+{WORD}", WORD: WORD,
            "pg_config": [{"pg_name": WORD, "pg_desc": f"{WORD} tp", "ranks": [0, 1], "backend_config": WORD}],
        },
        "rankscope": {"rank": rank, "host": WORD, "device": WORD, "torch": f"2.9.0+{WORD}", WORD: WORD},
        "rankscope_calls": {"columns": [WORD], "calls": [[BASE, WORD, f"{WORD}:{WORD}", 1, 1, 8, 8, WORD]]},
        "rankscope_redacted": {"level": WORD, "repairs": {WORD: 3}},
        "stackFrames": {"1": {"name": WORD}},
        "traceEvents": events,
        "baseTimeNanoseconds": BASE,
        "tail": WORD,
    }  # fmt: skip


def snapshot() -> dict[str, Any]:
    """Return a memory snapshot with the word in every text."""
    frames = [
        {"filename": f"/home/{WORD}/model.py", "line": NUMBER, "name": WORD, "fx_trace": WORD},
        {"filename": f"/opt/{WORD}/site-packages/torch/nn/modules/linear.py", "line": 134, "name": f"forward_{WORD}"},
    ]
    block = {
        "size": 512,
        "requested_size": 500,
        "state": "active_allocated",
        "address": ADDRESS,
        "frames": frames,
        WORD: WORD,
    }
    segment = {"device": 0, "address": ADDRESS, "total_size": 2048, "allocated_size": 512, "active_size": 512,
               "stream": ADDRESS,
               "segment_type": WORD, "segment_pool_id": (WORD, 0), "is_expandable": WORD, "frames": frames,
               "blocks": [block]}  # fmt: skip
    moment = {"action": "alloc", "addr": ADDRESS, "size": 512, "stream": 0, "time_us": BASE // 1000, "frames": frames,
              "user_metadata": WORD, "compile_context": WORD}  # fmt: skip
    return {
        "segments": [segment],
        "device_traces": [[moment, {**moment, "action": WORD}]],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": WORD},
        "external_annotations": [{"name": WORD}],
        "rankscope": {"rank": 0, "attempt": 0, "window": 0, "complete": True, "host": WORD, WORD: WORD},
        WORD: WORD,
    }


def run(folder: Path) -> Path:
    """Write the run."""
    window, pulse = folder / "attempt_0/window_000", folder / "attempt_0/pulse"
    for made in (
        window,
        pulse,
        folder / "nodes",
        folder / "requests",
        folder / "announcements",
        folder / "report",
        folder / WORD,
    ):
        made.mkdir(parents=True)
    for rank in (0, 1):
        text = json.dumps(trace(rank))
        (window / f"rank_{rank:05d}.trace.json.gz").write_bytes(gzip.compress(text.encode()))
        (window / f"rank_{rank:05d}.json").write_text(_text(RankRecord))
        (window / f"rank_{rank:05d}.memory.pickle").write_bytes(pickle.dumps(snapshot(), 4))
    (folder / "attempt_0/rank_00001.oom.memory.pickle").write_bytes(pickle.dumps(snapshot(), 4))
    (folder / "run.json").write_text(_text(RunManifest))
    header = STEP_LOG_HEADER.pack(STEP_LOG_MAGIC, STEP_LOG_VERSION, STEP_LOG_ENTRY.size, PID)
    entry = STEP_LOG_ENTRY.pack(*range(len(STEP_LOG_COLUMNS)), 1, 0xFFFF, 2, NUMBER, BASE)
    entries = header + 3 * entry + WORD.encode()
    with (pulse / "rank_00000.bin.gz").open("wb") as raw, gzip.GzipFile(f"{WORD}.bin", "wb", fileobj=raw) as stream:
        stream.write(entries)
    for name in (
        *("agent.json", "nodes/launch.json", "nodes/0.claim.json", "nodes/0.result.json", "requests/request_0000.json"),
        *("announcements/attempt_0_window_0000.json", "report/report.json", "report/report.html", "audit.jsonl"),
        *("attempt_0/window_000/rank_00000.parquet", "attempt_0/window_000/rank_00000.trace.json.gz.tmp"),
        *("live/0.json", "stuck/0.json", "stuck/question", "metrics.prom", "run.json.sig", "diff.html"),
        *(
            "reduced/host-00000-of-00001.reduced.arrow",
            "rankscope_baselines/gpt/0001.json.gz",
            f"attempt_0/pulse/{WORD}.bin.gz",
        ),
        *("sitecustomize.py", f"{WORD}.json", "report/cluster.trace.json.gz", f"{WORD}/notes.txt"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({WORD: WORD}))
    return folder


def _text(cls: Any) -> str:
    from rankscope.records.codec import to_plain

    plain = to_plain(record(cls)) | {WORD: WORD}
    return json.dumps(plain)
