"""Pool the windows into the rows of the report: times are summed, steps are concatenated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from rankscope.analysis.clocks.waits import lateness
from rankscope.analysis.tables.collective_costs import call_costs
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.report import ClockReport, CollectivesReport
from rankscope.records.rows import GroupRow, RankIdle, RankSummary, StepRow
from rankscope.statistics.grouping import grouped

__all__ = [
    "clock_report",
    "collectives_report",
    "group_rows",
    "idle_rows",
    "rank_summaries",
    "step_rows",
]


_Place: TypeAlias = tuple[WindowResult, int]
"""A window, and the column of a rank in it."""
_PER_STEP = ("calls_per_step", "wait_ms_per_step", "transfer_ms_per_step", "exposed_ms_per_step")


def rank_summaries(windows: Sequence[WindowResult]) -> list[RankSummary]:
    """Return one row per rank with an analysed trace. Waits per step are None without steps or matched calls.

    A rank whose device records are missing from the file has no numbers; one that lost some has not status ok.
    """
    caused = {id(window): _caused(window) for window in windows}
    rows = [_rank_summary(rank, places, caused) for rank, places in _by_rank(windows).items()]
    analysed = {row.rank for row in rows}
    left = {rank: why for window in windows for rank, why in window.left.items() if rank not in analysed}
    rows += [RankSummary(rank=rank, status="partial", reason=why) for rank, why in left.items()]
    return sorted(rows, key=lambda row: row.rank)


def _rank_summary(rank: int, places: Sequence[_Place], caused: Mapping[int, Sequence[float]]) -> RankSummary:
    """Return the row of a rank.

    Args:
        rank: its number.
        places: its windows, and its column in each.
        caused: identity of a window -> for each column how long others waited for that rank, ns.
    """
    window, column = places[0]
    view = window.views[column]
    steps_ms = np.concatenate([window.lengths[column] for window, column in places]) / 1e6
    steps = len(steps_ms)
    row = RankSummary(
        rank=rank,
        host=view.trace.meta.host,
        device=view.trace.meta.device or (None if view.device else "CPU"),
        steps=steps,
        files=[window.views[column].trace.source for window, column in places],
    )
    if steps:
        row.step_ms = {"median": float(np.median(steps_ms)), "p95": float(np.quantile(steps_ms, 0.95))}
    if steps and any(len(window.matched) for window, _ in places):
        row.wait_ms_per_step = sum(_waited(window, column) for window, column in places) / 1e6 / steps
        row.caused_wait_ms_per_step = sum(caused[id(window)][column] for window, column in places) / 1e6 / steps
    _set_shares(row, places)
    if lost := [window.partial[rank] for window, _ in places if rank in window.partial]:
        row.status, row.reason = "partial", "; ".join(dict.fromkeys(lost))
    return row


def _set_shares(row: RankSummary, places: Sequence[_Place]) -> None:
    """Set the percentages of the recorded time; they remain None if there is none."""
    usage = [window.usage[column] for window, column in places]
    span, comm = sum(u.span for u in usage), sum(u.comm for u in usage)
    if comm:
        row.overlap_pct = 100.0 * sum(u.overlap for u in usage) / comm
    if not span:
        return
    row.compute_pct = 100.0 * sum(u.compute for u in usage) / span
    row.comm_pct = 100.0 * comm / span
    if fused := sum(u.fused for u in usage):
        row.fused_pct = 100.0 * fused / span
    row.exposed_comm_pct = 100.0 * sum(u.exposed_comm for u in usage) / span
    row.memcpy_pct = 100.0 * sum(u.exposed_copy for u in usage) / span
    row.idle_pct = 100.0 * sum(u.idle for u in usage) / span


def _by_rank(windows: Sequence[WindowResult]) -> dict[int, list[_Place]]:
    places: dict[int, list[_Place]] = defaultdict(list)
    for window in windows:
        for column, view in enumerate(window.views):
            places[view.rank].append((window, column))
    return dict(sorted(places.items()))


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
            members, costs = matched.of(column), _costs(window, column)
            members = members[waits.step[members] >= 0]
            order, first = grouped(waits.step[members], len(window.steps[column]))
            for index, usage in enumerate(window.steps[column]):
                calls = members[order[first[index] : first[index + 1]]]
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
                        waiting_ms=min(float(window.idle[column].step_waiting[index]), usage.exposed_comm) / 1e6,
                        idle_ms=usage.idle / 1e6,
                        input_ms=float(window.idle[column].step_inputs[index]) / 1e6,
                        wait_ms=float(counted[calls].sum()) / 1e6 if len(calls) else None,
                        lateness_ms=float(late[calls].mean()) / 1e6 if len(calls) else None,
                        cost_ms=costs.get(index),
                    )
                )
    return rows


def _costs(window: WindowResult, column: int) -> dict[int, float]:
    """Return index of a rank's step -> what the rank costs the job in it, ms."""
    common = window.waits.steps.common
    if window.refused is not None or column >= len(window.lateness) or window.views[column].rank in window.unsound:
        return {}
    gains = window.lateness[column].gains
    if len(gains) != len(common):
        return {}
    own = np.flatnonzero(np.isin(window.waits.steps.of_rank(window.views[column], column), common))
    return dict(zip(own.tolist(), (gains.clip(0.0) / 1e6).tolist(), strict=True))


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
