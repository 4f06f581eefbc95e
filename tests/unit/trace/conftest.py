"""Small hand-made traces, and times of interval unions to compare with."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.trace.columns import Category, RankTrace
from rankscope.trace.names import is_communication

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def data() -> Path:
    return DATA


def covered(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def length(intervals: list[tuple[int, int]]) -> float:
    return sum(e - s for s, e in covered(intervals)) / 1000


@pytest.fixture
def accounts() -> Callable[..., dict[str, float]]:
    """Microseconds of compute, communication and so on of a trace, or of one of its steps."""

    def account(trace: RankTrace, step: int | None = None) -> dict[str, float]:
        events = trace.events
        chosen = np.ones(len(events), bool) if step is None else events.step == step
        pairs = list(zip(events.start.tolist(), events.end.tolist(), strict=True))
        kernels = np.flatnonzero(chosen & (events.category == Category.KERNEL)).tolist()
        copies = np.flatnonzero(chosen & np.isin(events.category, (Category.GPU_MEMCPY, Category.GPU_MEMSET))).tolist()
        comm = [pairs[i] for i in kernels if is_communication(trace.strings[events.name[i]])]
        compute = [pairs[i] for i in kernels if not is_communication(trace.strings[events.name[i]])]
        every = comm + compute  # the golden numbers count copies apart
        span = (max(e for _, e in every) - min(s for s, _ in every)) / 1000 if every else 0
        overlap = length(comm) + length(compute) - length(comm + compute)
        return {
            "kernels": len(kernels),
            "compute_kernels": len(compute),
            "gpu_busy_us": length(every),
            "compute_us": length(compute),
            "comm_us": length(comm),
            "memcpy_us": length([pairs[i] for i in copies]),
            "overlap_us": overlap,
            "exposed_comm_us": length(comm) - overlap,
            "gpu_span_us": span,
            "idle_in_span_us": span - length(every),
        }

    return account


def event(ts: Any, dur: Any, **more: Any) -> dict[str, Any]:
    whole = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": ts, "dur": dur}
    whole["args"] = {"stream": 7, "correlation": 1}
    return whole | more


@pytest.fixture
def make_event() -> Callable[..., dict[str, Any]]:
    return event


@pytest.fixture
def write_trace(tmp_path: Path) -> Callable[..., Path]:
    """Write a trace as Kineto lays it out (or with ``json.dumps``'s own layout) and return its path."""

    def write(events: list[Any], *, name: str = "rank_0.json", layout: str = "kineto", **top: Any) -> Path:
        top = {"schemaVersion": 1} | top
        if layout == "kineto":
            head = json.dumps(top)[:-1]
            body = ",\n".join("  " + json.dumps(e, indent=1).replace("\n", "\n  ") for e in events)
            text = f'{head},\n  "traceEvents": [\n{body}\n  ],\n  "traceName": "{name}"\n}}'
        elif layout == "compact":
            text = json.dumps(top | {"traceEvents": events}, separators=(",", ":"))
        else:
            text = json.dumps(top | {"traceEvents": events}, indent=int(layout) or None)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = text.encode()
        path.write_bytes(gzip.compress(raw, 1) if name.endswith(".gz") else raw)
        return path

    return write
