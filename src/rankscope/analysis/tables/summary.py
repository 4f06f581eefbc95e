"""Pool the windows into the rows of the report: times are summed, steps are concatenated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from rankscope.analysis.clocks.waits import lateness
from rankscope.analysis.tables.collective_costs import call_costs
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.report import ClockReport, CollectivesReport
from rankscope.records.rows import GroupRow, RankIdle, RankSummary, StepRow

__all__ = [
    "clock_report",
    "collectives_report",
    "group_rows",
    "idle_rows",
    "rank_summaries",
    "step_rows",
]


_PER_STEP = ("calls_per_step", "wait_ms_per_step", "transfer_ms_per_step", "exposed_ms_per_step")


def rank_summaries(windows: Sequence[WindowResult]) -> list[RankSummary]:
    """Return one row per rank with an analysed trace. Waits per step are None without steps or matched calls.

    A rank whose device records are missing from the file has no numbers; one that lost some has not status ok.
    """
    rows, caused = [], {id(w): _caused(w) for w in windows}
    for rank, places in _by_rank(windows).items():
        usage = [w.usage[c] for w, c in places]
        span = sum(u.span for u in usage)
        steps = np.concatenate([w.lengths[c] for w, c in places]) / 1e6
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
            caused_wait_ms_per_step=sum(caused[id(w)][c] for w, c in places) / 1e6 / count if known else None,
            files=[w.views[c].trace.source for w, c in places],
        )
        if span:
            row.compute_pct = 100.0 * sum(u.compute for u in usage) / span
            row.comm_pct = 100.0 * comm / span
            fused = sum(u.fused for u in usage)
            row.fused_pct = 100.0 * fused / span if fused else None
            row.exposed_comm_pct = 100.0 * sum(u.exposed_comm for u in usage) / span
            row.memcpy_pct = 100.0 * sum(u.exposed_copy for u in usage) / span
            row.idle_pct = 100.0 * sum(u.idle for u in usage) / span
        lost = [w.partial[rank] for w, _ in places if rank in w.partial]
        if lost:
            row.status, row.reason = "partial", "; ".join(dict.fromkeys(lost))
        rows.append(row)
    known_ranks = {row.rank for row in rows}
    for rank, why in {r: why for w in windows for r, why in w.left.items() if r not in known_ranks}.items():
        rows.append(RankSummary(rank=rank, status="partial", reason=why))
    return sorted(rows, key=lambda row: row.rank)


def _by_rank(windows: Sequence[WindowResult]) -> dict[int, list[tuple[WindowResult, int]]]:
    found: dict[int, list[tuple[WindowResult, int]]] = defaultdict(list)
    for window in windows:
        for column, view in enumerate(window.views):
            found[view.rank].append((window, column))
    return dict(sorted(found.items()))


def _waited(window: WindowResult, column: int) -> float:
    members = window.matched.of(column)
    return float(window.waits.wait[members][~window.waits.early[window.matched.call[members]]].sum())


def _caused(window: WindowResult) -> list[float]:
    """Return for each rank how long all others waited while it was the last to arrive, ns."""
    call = window.matched.call
    wait = np.where(window.waits.early[call], 0.0, window.waits.wait)
    return [float(ns) for ns in np.bincount(window.waits.last[call], wait, len(window.views)).tolist()]


def idle_rows(windows: Sequence[WindowResult]) -> list[RankIdle]:
    """Return the rows, per step. Ranks whose steps are unknown have no row, since a sum over the window is not a time
    per step."""
    rows = []
    for rank, every in _by_rank(windows).items():
        places = [(w, c) for w, c in every if w.views[c].steps]
        steps = sum(w.views[c].steps for w, c in places)
        if not steps:
            continue
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
    """Return one row per window, step and rank."""
    rows = []
    for window in windows:
        waits, matched = window.waits, window.matched
        late, counted = lateness(matched, waits), np.where(waits.early[matched.call], 0.0, waits.wait)
        for column, view in enumerate(window.views):
            members = matched.of(column)
            for index, usage in enumerate(window.steps[column]):
                calls = members[waits.step[members] == index]
                rows.append(
                    StepRow(
                        attempt=window.attempt,
                        window=window.window,
                        step=int(view.trace.steps.number[index]),
                        rank=view.rank,
                        duration_ms=float(window.lengths[column][index]) / 1e6,
                        compute_ms=usage.compute / 1e6,
                        comm_ms=usage.comm / 1e6,
                        exposed_comm_ms=usage.exposed_comm / 1e6,
                        idle_ms=usage.idle / 1e6,
                        input_ms=float(window.idle[column].step_inputs[index]) / 1e6,
                        wait_ms=float(counted[calls].sum()) / 1e6 if len(calls) else None,
                        lateness_ms=float(late[calls].mean()) / 1e6 if len(calls) else None,
                    )
                )
    return rows


def group_rows(windows: Sequence[WindowResult]) -> list[GroupRow]:
    """Return the kinds of calls per process group, most exposed first. Without steps there are no values per step."""
    unknown = {} if any(w.step_count for w in windows) else dict.fromkeys(_PER_STEP)
    return [
        GroupRow(group=name, ranks=list(ranks), collective=kind, dtype=dtype, **{**cost.numbers(), **unknown})
        for (_, ranks, name, kind, dtype), cost in call_costs(windows).items()
    ]


def clock_report(windows: Sequence[WindowResult]) -> ClockReport:
    """Return offsets as the median over windows, and the error of the worst window."""
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
    """Return how many calls all ranks recorded, and how many were matched and how."""
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
