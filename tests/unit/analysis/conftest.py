"""Hand-made traces, recorded traces, and simulated jobs with a known clock."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.trace.columns import Category, Collectives, Events, Group, RankTrace, Steps, TraceMeta
from rankscope.trace.files.load import LoadResult, load_traces

DATA = Path(__file__).parents[2] / "data"
LABELS: dict[str, Any] = json.loads((DATA / "traces" / "labels.json").read_text())["traces"]


@cache
def _load(folder: Path) -> LoadResult:
    return load_traces([folder], workers=1, cache=False)


@pytest.fixture
def recorded() -> Callable[[str], LoadResult]:
    """A recorded trace by name, a copy that may be changed."""
    return lambda name: copy.deepcopy(_load(DATA / "traces" / name))


@pytest.fixture
def case() -> Callable[[str], tuple[list[RankTrace], dict[str, Any]]]:
    """A hand-made case by its number: traces (unassigned ones too) and what is expected."""

    def find(number: str) -> tuple[list[RankTrace], dict[str, Any]]:
        folder = next((DATA / "cases").glob(f"{number}_*"))
        loaded = copy.deepcopy(_load(folder))
        return loaded.traces + loaded.unassigned, json.loads((folder / "expected.json").read_text())

    return find


@pytest.fixture
def skew() -> Callable[[RankTrace, int, float], None]:
    """Give a rank another clock: an offset in ns and a drift in parts per million."""

    def change(trace: RankTrace, offset: int, ppm: float) -> None:
        events, steps, origin = trace.events, trace.steps, int(trace.events.start[0])

        def moved(times: Any) -> Any:
            return origin + offset + np.round((times - origin) * (1 + ppm * 1e-6)).astype(np.int64)

        for row in (events, steps):
            end = moved(row.start + row.duration)
            row.start = moved(row.start)
            row.duration = end - row.start

    return change


@pytest.fixture
def insert_delay() -> Callable[[RankTrace, Sequence[int], int], None]:
    """Hold a rank's own clock up: everything at or after each time happens ``delay`` ns later."""

    def change(trace: RankTrace, times: Sequence[int], delay: int) -> None:
        def moved(points: Any) -> Any:
            return points + delay * sum((points >= t).astype(np.int64) for t in times)

        for row in (trace.events, trace.steps):
            end = moved(row.start + row.duration)
            row.start = moved(row.start)
            row.duration = end - row.start

    return change


@pytest.fixture
def make_trace() -> Callable[..., RankTrace]:
    """A rank with one stream from (name, start, duration, seq or None, elements) rows; times in us.

    Each piece of work is launched 20 us before the last one, or 20 us before itself, ended: no queue.
    """

    def build(
        rank: int,
        rows: Sequence[tuple[str, int, int]],
        *,
        ranks: tuple[int, ...],
        seq: bool = False,
        sizes: Sequence[int] | None = None,
        steps: Sequence[tuple[int, int]] = ((0, 1_000_000),),
    ) -> RankTrace:
        strings = [*dict.fromkeys(["cudaLaunchKernel", "aten::mm", *(r[0] for r in rows)])]
        code = {s: i for i, s in enumerate(strings)}
        events = []
        for number, (name, start, duration) in enumerate(rows):
            events.append((start - 20, 5, code["cudaLaunchKernel"], Category.CUDA_RUNTIME, 1, 1, -1, number))
            events.append((start - 22, 9, code["aten::mm"], Category.CPU_OP, 1, 1, -1, -1))
            events.append((start, duration, code[name], Category.KERNEL, 0, 7, 7, number))
        events.sort(key=lambda e: (e[0], -e[1]))
        table = np.array(events, np.int64)
        launch = {e[7]: i for i, e in enumerate(events) if e[3] == Category.CUDA_RUNTIME}
        size = len(events)
        first = np.array([s for s, _ in steps], np.int64) * 1000
        length = np.array([d for _, d in steps], np.int64) * 1000
        columns = Events(
            start=table[:, 0] * 1000,
            duration=table[:, 1] * 1000,
            name=table[:, 2].astype(np.int32),
            category=table[:, 3].astype(np.int8),
            pid=table[:, 4],
            tid=table[:, 5],
            stream=table[:, 6].astype(np.int32),
            correlation=table[:, 7],
            external_id=np.full(size, -1),
            launch=np.array([launch[e[7]] if e[3] == Category.KERNEL else -1 for e in events], np.int32),
            step=np.zeros(size, np.int32),
            shape=np.full(size, -1, np.int32),
            bytes=np.full(size, -1),
            bandwidth_gb_s=np.zeros(size),
            position=np.arange(size),
        )
        step = np.searchsorted(first, columns.start, side="right") - 1
        gpu = columns.launch >= 0
        step[gpu] = step[columns.launch[gpu]]
        columns.step = step.astype(np.int32)
        calls = [i for i, e in enumerate(events) if "nccl" in strings[e[2]]]
        count = len(calls)
        return RankTrace(
            source=f"rank_{rank}",
            rank=rank,
            meta=TraceMeta(rank=rank, world_size=len(ranks)),
            strings=strings,
            events=columns,
            steps=Steps(np.arange(len(steps)), first, length),
            groups=[Group("0", "default_pg", ranks)],
            collectives=Collectives(
                event=np.array(calls, np.int32),
                kind=["allreduce"] * count,
                group=np.zeros(count, np.int32),
                seq=np.arange(count) if seq else np.full(count, -1),
                comms_id=[""] * count,
                in_elements=np.array(sizes if sizes is not None else [1024] * count),
                out_elements=np.array(sizes if sizes is not None else [1024] * count),
                dtype=["Float"] * count,
                peer=np.full(count, -1, np.int32),
            ),
        )

    return build
