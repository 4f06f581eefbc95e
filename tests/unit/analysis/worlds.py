"""Simulated jobs of any size: the steps of one rank, on every rank of a PP x DP x TP mesh.

A program is what one rank does in a step: work, calls and synchronisations, by hand (:func:`by_hand`) or with the host
gaps, kernels and sizes of a recorded rank (:func:`of_a_recorded_rank`). The simulation knows four rules and nothing of
the product: a host issues in order, a stream runs in order, a call ends on all members a transfer after the last
arrival, a synchronisation waits for the device. All ranks advance together, as arrays. Times are integer ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rankscope.analysis.matching.collectives import canonical
from rankscope.trace.columns import Category, Collectives, Events, Group, RankTrace, Steps, TraceMeta

US = 1000
MS = 1_000_000
LAUNCH = 6 * US
"""From the start of a launch to the start of its kernel on an idle stream."""
CALL = 5 * US

COMPUTE, COMM = 7, 13


@dataclass(frozen=True)
class Item:
    """One thing a rank does. ``what``: work, call, p2p (to the next stage), sync, fetch or pause."""

    what: str
    host: int = 20 * US
    """Host time before it is issued (of a fetch or a pause: its length)."""
    device: int = 0
    """Kernel time of work, transfer of a call."""
    axis: str = "dp"
    name: str = "gemm"
    kind: str = "allreduce"
    elements: int = 1024
    stage: int = -1
    """Only the ranks of this stage do it; -1 all. Of p2p: the sender's."""
    blocking: bool = False
    """A call that later compute waits for."""


@dataclass(frozen=True)
class Fault:
    """More of something on one rank, before item ``before`` of the given steps."""

    rank: int
    item: Item
    before: int = 0
    steps: tuple[int, ...] | None = None
    times: int = 1


@dataclass
class Mesh:
    tp: int = 1
    dp: int = 1
    pp: int = 1
    place: np.ndarray = field(init=False)
    """(R, 3): stage, replica and shard of each rank."""

    def __post_init__(self) -> None:
        grid = np.indices((self.pp, self.dp, self.tp)).reshape(3, -1)
        self.place = grid.T

    @property
    def size(self) -> int:
        return self.tp * self.dp * self.pp

    def members(self, rank: int, axis: str) -> tuple[int, ...]:
        if axis == "world":
            return tuple(range(self.size))
        fixed = [d for d, n in enumerate(("pp", "dp", "tp")) if n != axis]
        same = (self.place[:, fixed] == self.place[rank, fixed]).all(axis=1)
        return tuple(np.flatnonzero(same).tolist())


def by_hand(layers: int = 4, *, tp: bool = True, work_us: int = 400) -> list[Item]:
    """Forward and backward with two TP calls a layer, DP gradients beside the backward, a sync at the end."""
    items = []
    for _ in range(layers):
        items += [Item("work", device=work_us * US), Item("work", device=work_us * US)]
        items += [Item("call", device=80 * US, axis="tp", elements=4096, blocking=True)] if tp else []
    for _ in range(layers):
        items += [Item("work", device=2 * work_us * US)]
        items += [Item("call", device=80 * US, axis="tp", elements=4096, blocking=True)] if tp else []
        items += [Item("call", device=150 * US, axis="dp", elements=65536)]
    return [*items, Item("sync")]


def pipeline(stages: int, micro: int = 4, *, work_us: int = 500, tp: bool = False) -> list[Item]:
    """Every micro-batch forward through the stages and back, with a TP call in each; DP gradients at the end."""
    items = []
    for _ in range(micro):
        for stage in range(stages):
            items.append(Item("work", device=work_us * US, stage=stage))
            if tp:
                items.append(Item("call", device=60 * US, axis="tp", elements=4096, stage=stage, blocking=True))
            if stage + 1 < stages:
                items.append(Item("p2p", device=30 * US, stage=stage, elements=2048, blocking=True))
    return [*items, Item("call", device=150 * US, elements=65536, blocking=True), Item("sync")]


def of_a_recorded_rank(traces: Sequence[RankTrace], *, axes: Sequence[str] = ("dp",), parts: int = 3) -> list[Item]:
    """The second step of the first trace: its launches between calls, merged to ``parts`` pieces.

    Host time is that between launches without what they block; transfers are the shorter of the ranks'.
    """
    trace = traces[0]
    events, calls = trace.events, trace.collectives
    call_row = {int(e): r for r, e in enumerate(calls.event)}
    mine = np.flatnonzero((events.launch >= 0) & (events.step == 1))
    mine = mine[np.argsort(events.start[events.launch[mine]], kind="stable")]
    items: list[Item] = []
    pieces: list[tuple[int, int]] = []
    previous, number = int(events.start[events.launch[mine[0]]]), 0

    def flush() -> None:
        split = np.array_split(np.array(pieces, np.int64).reshape(-1, 2), min(parts, max(len(pieces), 1)))
        items.extend(Item("work", host=int(p[:, 0].sum()), device=int(p[:, 1].sum())) for p in split if len(p))
        pieces.clear()

    for event in mine.tolist():
        launch = int(events.launch[event])
        gap = max(int(events.start[launch]) - previous, US)
        previous = int(events.start[launch])
        if events.duration[launch] > 150 * US:
            previous = int(events.end[launch])  # it blocked
        if event not in call_row:
            pieces.append((gap, int(events.duration[event])))
            continue
        flush()
        row = call_row[event]
        transfer = min(int(t.events.duration[t.collectives.event[row]]) for t in traces)
        axis = axes[number % len(axes)]
        number += 1
        items.append(
            Item(
                "call", gap, min(transfer, 200 * US), axis, kind=calls.kind[row],
                elements=int(calls.in_elements[row]), blocking=axis == "tp",
            )
        )  # fmt: skip
    flush()
    return [*items, Item("sync")]


class _Recorder:
    """Columns of events of all ranks, item by item."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.strings: dict[str, int] = {}
        self.rows: list[tuple[np.ndarray, np.ndarray, np.ndarray, int, int, int, int, int]] = []
        self.calls: list[tuple[int, Item, str]] = []
        self.correlation = 0

    def add(self, who, start, length, name: str, category: int, stream=-1, link=-1, step=-1) -> int:
        """``link`` ties a launch to its kernel."""
        code = self.strings.setdefault(name, len(self.strings))
        self.rows.append((who, start.copy(), np.maximum(length, 0), code, category, stream, link, step))
        return len(self.rows) - 1


def simulate(
    program: Sequence[Item],
    mesh: Mesh,
    *,
    steps: int = 4,
    faults: Iterable[Fault] = (),
    links: Mapping[tuple[str, int], float] | None = None,
    noise: float = 0.0,
    seed: int = 0,
) -> list[RankTrace]:
    """Run the job and record every rank. ``noise`` spreads host and device times by that share.

    ``links``: axis and number of a group -> how many times as long its transfers take; ``p2p`` and the rank that sends
    -> the same for its messages to the next stage.
    """
    size, rng = mesh.size, np.random.default_rng(seed)
    host, streams = np.full(size, 10 * MS), {COMPUTE: np.zeros(size, np.int64), COMM: np.zeros(size, np.int64)}
    out = _Recorder(size)
    everyone = np.ones(size, bool)
    groups = {axis: _group_index(mesh, axis) for axis in ("tp", "dp", "pp", "world")}
    marks = []

    def spread(length: int) -> np.ndarray:
        return np.round(length * (1 + noise * np.abs(rng.standard_normal(size)))).astype(np.int64)

    def do(item: Item, who: np.ndarray, step: int) -> None:
        nonlocal host
        if item.what in {"fetch", "pause"}:
            if item.what == "fetch":
                name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
                out.add(who, host, np.full(size, item.host), name, Category.USER_ANNOTATION, step=step)
            host = np.where(who, host + item.host, host)
            return
        host = np.where(who, host + spread(item.host), host)
        if item.what == "sync":
            until = np.maximum(host + CALL, np.maximum(streams[COMPUTE], streams[COMM]) + 8 * US)
            out.add(who, host, until - host, "cudaStreamSynchronize", Category.CUDA_RUNTIME, step=step)
            host = np.where(who, until, host)
            return
        stream = COMPUTE if item.what == "work" else COMM
        out.add(who, host - 10 * US, np.full(size, 9 * US), "aten::mm" if item.what == "work" else "c10d::call",
                Category.CPU_OP, step=step)  # fmt: skip
        ready = host + LAUNCH
        if stream == COMM:
            out.add(who, host - US, np.full(size, US // 2), "cudaStreamWaitEvent", Category.CUDA_RUNTIME, step=step)
            ready = np.maximum(ready, streams[COMPUTE] + 2 * US)
        begin = np.maximum(ready, streams[stream] + US)
        if item.what == "work":
            end = begin + spread(item.device)
        else:
            group = groups["pp" if item.what == "p2p" else item.axis]
            if item.what == "p2p":
                group = group * 1000 + np.where(who, 0, 999)
            latest = np.full(int(group.max()) + 1, -1)
            np.maximum.at(latest, group[who], begin[who])
            transfer = spread(item.device)[group % size]
            for (axis, number), times in (links or {}).items():
                sends = axis == item.what == "p2p" and mesh.place[number, 0] == item.stage
                transfer = np.where(
                    (group == group[number]) if sends else (item.axis == axis) & (group == number),
                    (transfer * times).astype(np.int64),
                    transfer,
                )
            end = np.maximum(latest[group], begin) + transfer + rng.integers(0, 2 * US, size)
        link = out.correlation
        out.correlation += 1
        out.add(who, host, np.full(size, CALL), "cudaLaunchKernel", Category.CUDA_RUNTIME, link=link, step=step)
        name = item.name if item.what == "work" else f"ncclDevKernel_{item.kind}"
        row = out.add(who, begin, end - begin, name, Category.KERNEL, stream, link, step)
        streams[stream] = np.where(who, end, streams[stream])
        if stream == COMM:
            out.calls.append((row, item, item.what))
            if item.blocking:
                streams[COMPUTE] = np.where(who, np.maximum(streams[COMPUTE], end), streams[COMPUTE])
        host = np.where(who, host + CALL, host)

    for step in range(steps):
        begun = host.copy()
        for number, item in enumerate(program):
            if item.what == "call" and len(mesh.members(0, item.axis)) < 2:
                continue
            for fault in faults:
                if fault.before == number and (fault.steps is None or step in fault.steps):
                    alone = np.arange(size) == fault.rank
                    for _ in range(fault.times):
                        do(fault.item, alone, step)
            stage = mesh.place[:, 0]
            who = everyone if item.stage < 0 else stage == item.stage
            if item.what == "p2p":
                who = (stage == item.stage) | (stage == item.stage + 1)
            do(item, who, step)
        marks.append((begun, host - begun))
        out.add(everyone, begun, host - begun, f"ProfilerStep#{step + 10}", Category.USER_ANNOTATION, step=step)
    return [_trace(out, mesh, rank, marks) for rank in range(size)]


def _group_index(mesh: Mesh, axis: str) -> np.ndarray:
    found: dict[tuple[int, ...], int] = {}
    return np.array([found.setdefault(mesh.members(r, axis), len(found)) for r in range(mesh.size)])


def _trace(out: _Recorder, mesh: Mesh, rank: int, marks) -> RankTrace:
    kept = [i for i, row in enumerate(out.rows) if row[0][rank]]
    table = np.array(
        [(out.rows[i][1][rank], out.rows[i][2][rank], *out.rows[i][3:]) for i in kept], np.int64
    ).reshape(-1, 7)  # fmt: skip
    start, length, name, category, stream, link, step = table.T
    order = np.lexsort((-length, start))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    launches = {int(k): int(place[i]) for i, k in enumerate(link) if k >= 0 and stream[i] < 0}
    launch = np.array([launches.get(int(k), -1) if s >= 0 else -1 for k, s in zip(link, stream, strict=True)], np.int32)
    size = len(order)
    events = Events(
        start=start[order], duration=length[order], name=name[order].astype(np.int32),
        category=category[order].astype(np.int8), pid=np.where(stream >= 0, 0, 1)[order],
        tid=np.where(stream >= 0, stream, 1)[order], stream=stream[order].astype(np.int32), correlation=link[order],
        external_id=np.full(size, -1), launch=launch[order], step=step[order].astype(np.int32),
        shape=np.full(size, -1, np.int32), bytes=np.full(size, -1), bandwidth_gb_s=np.zeros(size),
        position=np.arange(size),
    )  # fmt: skip
    row_of = {i: int(place[k]) for k, i in enumerate(kept)}
    calls = sorted((row_of[row], item) for row, item, _ in out.calls if row in row_of)
    axes = [a for a in ("tp", "dp", "pp", "world") if len(mesh.members(rank, a)) > 1]
    groups = [Group(str(n), a, mesh.members(rank, a)) for n, a in enumerate(axes)]
    index = {a: n for n, a in enumerate(axes)}
    kinds, peers = [], []
    stage, near = int(mesh.place[rank, 0]), mesh.dp * mesh.tp
    for _, item in calls:
        sending = item.stage == stage
        kinds.append(item.kind if item.what == "call" else "send" if sending else "recv")
        peers.append(-1 if item.what == "call" else rank + near if sending else rank - near)
    return RankTrace(
        source=f"rank_{rank}", rank=rank, meta=TraceMeta(rank=rank, world_size=mesh.size),
        strings=list(out.strings), events=events,
        steps=Steps(np.arange(10, 10 + len(marks)), np.array([b[rank] for b, _ in marks]),
                    np.array([d[rank] for _, d in marks])),
        groups=groups,
        collectives=Collectives(
            event=np.array([e for e, _ in calls], np.int32), kind=kinds,
            group=np.array([index["pp" if i.what == "p2p" else i.axis] for _, i in calls], np.int32),
            seq=np.full(len(calls), -1), comms_id=[""] * len(calls),
            in_elements=np.array([i.elements for _, i in calls]), out_elements=np.array([i.elements for _, i in calls]),
            dtype=["Float"] * len(calls), peer=np.array(peers, np.int32),
        ),
    )  # fmt: skip


def kinds_of(trace: RankTrace) -> set[str]:
    """Canonical kinds of a rank's calls."""
    return {canonical(k) for k in trace.collectives.kind}
