"""Pool the windows into the rows of the report: times add up, steps are strung together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis import intervals
from rankscope.analysis.waits import bus_bandwidth, element_bytes
from rankscope.analysis.window import WindowResult
from rankscope.model import (
    ClockReport,
    CollectivesReport,
    GroupRow,
    RankIdle,
    RankSummary,
    StepRow,
)

__all__ = [
    "clock_report",
    "collectives_report",
    "exposed_per_call",
    "group_rows",
    "idle_rows",
    "rank_summaries",
    "step_rows",
]


def rank_summaries(windows: Sequence[WindowResult]) -> list[RankSummary]:
    """One row per rank with a usable trace. Waits per step are None without steps or matched calls."""
    rows = []
    for rank, places in _by_rank(windows).items():
        usage = [w.usage[c] for w, c in places]
        span = sum(u.span for u in usage)
        steps = np.concatenate([w.views[c].trace.steps.duration for w, c in places]) / 1e6
        comm = sum(u.comm for u in usage)
        count = len(steps)
        meta = places[0][0].views[places[0][1]].trace.meta
        known = count > 0 and any(len(w.matched) for w, _ in places)
        row = RankSummary(
            rank=rank,
            host=meta.host,
            device=meta.device or ("CPU" if not places[0][0].views[places[0][1]].device else None),
            steps=count,
            step_ms={
                "median": float(np.median(steps)) if count else None,
                "p95": float(np.quantile(steps, 0.95)) if count else None,
            },
            overlap_pct=100.0 * sum(u.overlap for u in usage) / comm if comm else None,
            wait_ms_per_step=sum(_waited(w, c) for w, c in places) / 1e6 / count if known else None,
            caused_wait_ms_per_step=sum(_caused(w, c) for w, c in places) / 1e6 / count if known else None,
            files=[w.views[c].trace.source for w, c in places],
        )
        if span:
            row.compute_pct = 100.0 * sum(u.compute for u in usage) / span
            row.comm_pct = 100.0 * comm / span
            row.exposed_comm_pct = 100.0 * sum(u.exposed_comm for u in usage) / span
            row.memcpy_pct = 100.0 * sum(u.exposed_copy for u in usage) / span
            row.idle_pct = 100.0 * sum(u.idle for u in usage) / span
        rows.append(row)
    return rows


def _by_rank(windows: Sequence[WindowResult]) -> dict[int, list[tuple[WindowResult, int]]]:
    found: dict[int, list[tuple[WindowResult, int]]] = defaultdict(list)
    for window in windows:
        for column, view in enumerate(window.views):
            found[view.rank].append((window, column))
    return dict(sorted(found.items()))


def _waited(window: WindowResult, column: int) -> float:
    return float(np.nansum(window.waits.wait[~window.waits.early, column])) if len(window.matched) else 0.0


def _caused(window: WindowResult, column: int) -> float:
    """Waiting of all others while this rank was the last: each waited at least from the last but one on."""
    if not len(window.matched):
        return 0.0
    return float(np.nansum(window.waits.wait[(window.waits.last == column) & ~window.waits.early]))


def idle_rows(windows: Sequence[WindowResult]) -> list[RankIdle]:
    """Per step; per window where there are no step marks."""
    rows = []
    for rank, places in _by_rank(windows).items():
        steps = sum(w.views[c].steps or 1 for w, c in places)
        idle = [w.idle[c] for w, c in places]
        rows.append(
            RankIdle(
                rank=rank,
                waiting_ms=sum(i.waiting for i in idle) / 1e6 / steps,
                transfer_ms=sum(i.transfer for i in idle) / 1e6 / steps,
                input_ms=sum(i.inputs for i in idle) / 1e6 / steps,
                host_ms=sum(i.host for i in idle) / 1e6 / steps,
                copy_ms=sum(i.copy for i in idle) / 1e6 / steps,
            )
        )
    return rows


def step_rows(windows: Sequence[WindowResult]) -> list[StepRow]:
    """One row per window, step and rank."""
    rows = []
    for window in windows:
        arrival, step = window.waits.arrival, window.waits.step
        for column, view in enumerate(window.views):
            others = [c for c in range(len(window.views)) if c != column]
            for index, usage in enumerate(window.steps[column]):
                calls = step[:, column] == index
                wait = lateness = None
                if calls.any():
                    wait = float(np.nansum(window.waits.wait[calls & ~window.waits.early, column])) / 1e6
                    shared = arrival[calls][:, others]
                    both = ~np.isnan(shared).all(axis=1) if shared.size else np.zeros(int(calls.sum()), np.bool_)
                    if both.any():
                        middle = np.nanmedian(shared[both], axis=1)
                        lateness = float(np.mean(arrival[calls, column][both] - middle)) / 1e6
                rows.append(
                    StepRow(
                        attempt=window.attempt,
                        window=window.window,
                        step=int(view.trace.steps.number[index]),
                        rank=view.rank,
                        duration_ms=usage.span / 1e6 if view.device else float(view.trace.steps.duration[index]) / 1e6,
                        compute_ms=usage.compute / 1e6,
                        comm_ms=usage.comm / 1e6,
                        exposed_comm_ms=usage.exposed_comm / 1e6,
                        idle_ms=usage.idle / 1e6,
                        wait_ms=wait,
                        lateness_ms=lateness,
                    )
                )
    return rows


def group_rows(windows: Sequence[WindowResult]) -> list[GroupRow]:
    """Kinds of calls per process group, most exposed first."""
    total: dict[tuple[str, tuple[int, ...], str, str | None], list[float]] = defaultdict(lambda: [0.0] * 6)
    speed: dict[tuple[str, tuple[int, ...], str, str | None], list[float]] = defaultdict(list)
    steps = sum(max(w.step_count, 1) for w in windows)
    for window in windows:
        if not len(window.matched):
            continue
        exposed = exposed_per_call(window)
        transfers, waits = np.nanmean(window.waits.transfer, axis=1), np.nanmean(window.waits.wait, axis=1)
        for call, kind in enumerate(window.matched.kind):
            columns = np.flatnonzero(window.matched.rows[call] >= 0).tolist()
            channel = window.matched.channels[int(window.matched.channel[call])]
            first = window.views[columns[0]].trace.collectives
            row = int(window.matched.rows[call, columns[0]])
            dtype = first.dtype[row] or None
            key = (channel.name, channel.ranks, kind, dtype)
            size = element_bytes(dtype) if dtype else None
            entry = total[key]
            entry[0] += 1
            transfer = float(transfers[call])
            entry[1] += 0.0 if window.waits.early[call] else float(waits[call])
            entry[2] += transfer
            if size and first.in_elements[row] >= 0:
                inputs, outputs = float(first.in_elements[row]) * size, float(first.out_elements[row]) * size
                entry[3] += max(inputs, outputs)
                rate = bus_bandwidth(kind, len(channel.ranks), inputs, outputs, transfer)
                if rate is not None:
                    speed[key].append(rate)
            entry[4] += float(exposed[call])
    rows = [
        GroupRow(
            group=name,
            ranks=list(ranks),
            collective=kind,
            dtype=dtype,
            calls_per_step=entry[0] / steps,
            megabytes_per_call=entry[3] / entry[0] / 1e6 if entry[3] else None,
            wait_ms_per_step=entry[1] / 1e6 / steps,
            transfer_ms_per_step=entry[2] / 1e6 / steps,
            exposed_ms_per_step=entry[4] / 1e6 / steps,
            bus_gb_s=float(np.median(speed[(name, ranks, kind, dtype)])) if speed[(name, ranks, kind, dtype)] else None,
        )
        for (name, ranks, kind, dtype), entry in total.items()
    ]
    return sorted(rows, key=lambda r: -(r.exposed_ms_per_step or 0.0))


def exposed_per_call(window: WindowResult) -> NDArray[np.float64]:
    """Part of each call that compute does not hide, mean over its ranks, ns."""
    rows = window.matched.rows
    total = np.zeros(len(rows))
    for column, view in enumerate(window.views):
        mine = rows[:, column] >= 0
        event = view.trace.collectives.event[rows[mine, column]]
        spans = intervals.subtract(view.comm, view.compute)
        total[mine] += intervals.cover(spans, view.trace.events.start[event], view.trace.events.end[event])
    return np.asarray(total / np.maximum((rows >= 0).sum(axis=1), 1))


def clock_report(windows: Sequence[WindowResult]) -> ClockReport:
    """Offsets as the median over windows, the error of the worst window."""
    aligned = [w for w in windows if w.clocks.method != "none"]
    if not aligned:
        return ClockReport(method="none")
    offsets: dict[int, list[float]] = defaultdict(list)
    for window in aligned:
        for column, view in enumerate(window.views):
            middle = (view.start + view.end) // 2
            own = float(middle - window.clocks.origin)
            offsets[view.rank].append(float(window.clocks.aligned(column, np.array([middle]))[0]) - own)
    errors = [w.clocks.error_ns for w in aligned if w.clocks.error_ns is not None]
    return ClockReport(
        method=aligned[0].clocks.method,
        offsets_us={str(rank): float(np.median(found)) / 1e3 for rank, found in sorted(offsets.items())},
        error_us=max(errors) / 1e3 if errors else None,
    )


def collectives_report(windows: Sequence[WindowResult]) -> CollectivesReport:
    """Calls of all ranks and windows."""
    total = sum(w.matched.total for w in windows)
    methods: list[str] = []
    unmatched: dict[str, int] = defaultdict(int)
    for window in windows:
        methods += [m for m in window.matched.methods if m not in methods]
        for reason, calls in window.matched.unmatched.items():
            unmatched[reason] += calls
    return CollectivesReport(
        count=sum(len(v.trace.collectives) for w in windows for v in w.views),
        matched_pct=100.0 * sum(w.matched.matched for w in windows) / total if total else None,
        method="+".join(methods) or "none",
        unmatched=dict(unmatched),
    )
