"""Collect the numbers of all windows into the evidence that the rules of ``diagnose`` read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.evidence.anomalies import find_anomalies
from rankscope.analysis.evidence.micro_batches import micro_batches
from rankscope.analysis.evidence.named_regions import name_regions
from rankscope.analysis.evidence.places import find_places
from rankscope.analysis.evidence.program import (
    OPTIMIZER_STEP,
    compute_ms,
    has_shapes,
    host_lines,
    host_ms,
    most_called,
    uses,
)
from rankscope.analysis.evidence.repeats import repeated_reductions
from rankscope.analysis.evidence.spare_cpus import spare_cpus
from rankscope.analysis.evidence.stage_balance import stage_balance
from rankscope.analysis.evidence.suspects import find_suspects
from rankscope.analysis.gains.computed_again import again_ms
from rankscope.analysis.gains.pageable import pageable_ms
from rankscope.analysis.gains.work_gains import mean_gain_ms, work_gains
from rankscope.analysis.operators.suspects import MOST_RANKS, name_what_they_do
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.what_if import Replay
from rankscope.analysis.tables.kernels import median_kernel_us
from rankscope.analysis.tables.modules import exposed_by_module, gathered_again
from rankscope.analysis.windows.analyse import ALONE, WindowResult
from rankscope.causes import allocator
from rankscope.records.evidence import Evidence, GroupDelay
from rankscope.records.rank import RankRecord
from rankscope.records.rows import ModuleRow, RankIdle, RankSummary
from rankscope.statistics.thresholds import MATTERS
from rankscope.trace.names import Kind

__all__ = ["collect"]

F64 = NDArray[np.float64]


def collect(
    windows: Sequence[WindowResult],
    ranks: Sequence[RankSummary],
    idle: Sequence[RankIdle],
    modules: Sequence[ModuleRow] = (),
    recording_overhead_pct: float | None = None,
    records: Sequence[RankRecord] = (),
) -> Evidence:
    """Return the evidence of a run: windows are pooled, their steps concatenated."""
    evidence = _totals(windows, ranks, idle)
    evidence.recording_ms = _recording_ms(evidence.whole_step_ms, recording_overhead_pct)
    before_ms = [_mean(record.steps.before_ms) for record in records if record.steps.before_ms]
    evidence.before_ms = _mean(before_ms) if before_ms else None
    evidence.modules = exposed_by_module(windows, modules)
    evidence.regather_ms, evidence.regather_bytes = gathered_again(modules)
    evidence.spare_cpus = spare_cpus(records)
    evidence.host_lines = host_lines(windows, idle) if evidence.stacks else {}
    # These include windows without a replay because no rank makes others wait.
    trusted = [window for window in windows if window.refused is None]
    replayed = [window for window in trusted if window.replay is not None]
    # A lone rank has no peers, and so no verdict on ranks, but its steps are replayed.
    alone = [window for window in windows if window.replay is not None and window.refused == ALONE]
    if replayed or alone:
        _add_gains_of_work(evidence, replayed or alone)
    if replayed:
        _add_gains_of_communication(evidence, replayed)
    if trusted:
        evidence.screened = not replayed
        _compare_ranks(evidence, trusted, ranks, idle, records)
    else:
        evidence.refused = next((window.refused for window in windows if window.refused), "no window")
    return evidence


def _totals(windows: Sequence[WindowResult], ranks: Sequence[RankSummary], idle: Sequence[RankIdle]) -> Evidence:
    """Return the evidence that needs no comparison of ranks and no replay."""
    usable = [row for row in ranks if row.compute_pct is not None]
    views = [view for window in windows for view in window.views]
    device = any(view.device for view in views)
    calls = sum(window.matched.total for window in windows)
    overlaps = [row.overlap_pct for row in usable if row.overlap_pct is not None]
    return Evidence(
        ranks=[row.rank for row in usable],
        missing=[row.rank for row in ranks if row.status in {"missing", "corrupt"}],
        incomplete={rank: words for w in windows for rank, words in {**w.left, **w.partial}.items()},
        unsound=sorted({rank for window in windows for rank in window.unsound | window.left.keys()}),
        hosts=len({row.host for row in usable if row.host}),
        optimizer_ms=_mean([host_ms(view, OPTIMIZER_STEP) for view in views]),
        steps=sum(window.step_count for window in windows),
        step_ms=_step(windows),
        mean_step_ms=_mean_step(windows),
        device=device,
        compute_ms=compute_ms(usable),
        uses=uses(views),
        shapes=any(has_shapes(view) for window in windows for view in window.views[:1]),
        stacks=any(len(view.trace.python) for view in views),
        **most_called(views),
        calls=sum(len(window.matched) for window in windows),
        matched_pct=100.0 * sum(window.matched.matched for window in windows) / calls if calls else None,
        unmatched=dict(sum((window.matched.unmatched for window in windows), Counter[str]()).most_common()),
        clock_spread_us=max((window.clocks.spread_ns for window in windows), default=0.0) / 1e3,
        pipeline=any(window.pipeline for window in windows),
        staged=any(window.staged for window in windows),
        micro_batches=micro_batches(windows),
        compute_pct=_mean([row.compute_pct for row in usable]),
        exposed_comm_pct=_mean([row.exposed_comm_pct for row in usable]),
        overlap_pct=_mean(overlaps) if overlaps else None,
        idle_pct=_mean([row.idle_pct for row in usable]),
        waiting_ms=_mean([row.waiting_ms for row in idle]),
        transfer_ms=_mean([row.transfer_ms for row in idle]),
        input_ms=_mean([row.input_ms for row in idle]),
        host_ms=_mean([row.host_ms for row in idle]),
        most_host_ms=max((row.host_ms for row in idle), default=None),
        copy_ms=_mean([row.copy_ms for row in idle]),
        kernel_us=median_kernel_us(views),
        launches=_launches(views),
        groups=sorted({f"{c.name} {list(c.ranks)}" for window in windows for c in window.matched.channels}),
        allocator_ms=_allocator_ms(windows),
        **repeated_reductions(windows, device=device),
    )


def _add_gains_of_work(evidence: Evidence, replayed: Sequence[WindowResult]) -> None:
    """Add what steps would gain by less work of devices and hosts."""
    evidence.work_gains, evidence.pageable_ms = work_gains(replayed), pageable_ms(replayed)
    evidence.again_ms = again_ms(replayed)
    evidence.host_gain_ms = _gain(replayed, lambda replay: replay.gains(replay.without(Work.HOST)))


def _add_gains_of_communication(evidence: Evidence, replayed: Sequence[WindowResult]) -> None:
    """Add what steps would gain by faster or hidden transfers and by equal ranks, and the slow process groups."""
    evidence.stages = stage_balance(replayed)
    evidence.network_gain_ms = _gain(replayed, Replay.ideal_network)
    evidence.overlap_gain_ms = _gain(replayed, Replay.hidden)
    evidence.balance_gain_ms = _gain(replayed, lambda replay: replay.gains(replay.balanced()))
    evidence.slow_groups = _slow_groups(replayed)


def _compare_ranks(
    evidence: Evidence,
    trusted: Sequence[WindowResult],
    ranks: Sequence[RankSummary],
    idle: Sequence[RankIdle],
    records: Sequence[RankRecord],
) -> None:
    """Add the candidate ranks, what they do, and other differences between ranks."""
    step_ms = evidence.step_ms or 0.0
    visible = max(window.visible for window in trusted)
    evidence.visible_pct = 100.0 * visible if np.isfinite(visible) else None
    evidence.places = find_places(trusted, ranks, records)
    evidence.suspects = find_suspects(trusted, ranks, idle)
    name_what_they_do(evidence.suspects, trusted, step_ms)
    name_regions([s for s in evidence.suspects if s.cost_ms > MATTERS * step_ms][:MOST_RANKS], trusted)
    if not evidence.pipeline:
        evidence.anomalies = find_anomalies(trusted, step_ms)


def _recording_ms(step_ms: float, overhead_pct: float | None) -> float:
    """Return what recording adds to a step. Steps before a window can be slower, in a job that still warms up: then
    0."""
    if overhead_pct is None or overhead_pct <= 0:
        return 0.0
    return step_ms * overhead_pct / (100.0 + overhead_pct)


def _mean(values: Sequence[float | None]) -> float:
    real = [v for v in values if v is not None]
    return float(np.mean(real)) if real else 0.0


def _step(windows: Sequence[WindowResult]) -> float | None:
    """Return the job's mean step over all steps that every rank recorded, which costs per step are means over."""
    known = [(w.step_ns, max(w.step_count, 1)) for w in windows if w.step_ns]
    return float(np.average([ns for ns, _ in known], weights=[n for _, n in known])) / 1e6 if known else None


def _mean_step(windows: Sequence[WindowResult]) -> float | None:
    """Return the accounted time per step on the slowest rank; single slow periods count in full."""
    means = [max((float(n.mean()) for n in w.lengths if len(n)), default=0.0) for w in windows if w.step_count]
    means = [mean for mean in means if mean]
    return float(np.mean(means)) / 1e6 if means else None


def _launches(views: Sequence[RankView]) -> float:
    """Return the number of compute kernels per step, mean over the ranks with a device."""
    rates = [
        float(((view.kind == Kind.COMPUTE) & (view.trace.events.step >= 0)).sum()) / view.steps
        for view in views
        if view.device and view.steps
    ]
    return float(np.mean(rates)) if rates else 0.0


def _allocator_ms(windows: Sequence[WindowResult]) -> float:
    """Return the time per step of the median rank (of two in the middle, the lesser), which all ranks spend."""
    times = sorted(
        float(profile.length[allocator.CAUSE.name].sum()) / view.steps / 1e6
        for window in windows
        for view, profile in zip(window.views, window.profiles, strict=False)
        if view.device and view.steps
    )
    return times[(len(times) - 1) // 2] if times else 0.0


def _gain(windows: Sequence[WindowResult], ask: Callable[[Replay], F64]) -> float:
    """Return the mean gain per step, ms; ``ask`` returns that of each step of a window in ns."""
    return mean_gain_ms((w.replay, ask(w.replay)) for w in windows if w.replay is not None)


def _slow_groups(windows: Sequence[WindowResult]) -> list[GroupDelay]:
    """Return those of the window in which they cost most, since a link need not be slow in every window."""
    worst = max(windows, key=lambda w: sum(float(g.gains.mean()) for g in w.slow_groups), default=None)
    return [
        GroupDelay(
            ranks=list(group.slow.ranks),
            kinds=list(group.slow.kinds),
            ratio=group.slow.ratio,
            cost_ms=float(group.gains.mean()) / 1e6,
            error_ms=group.error / 1e6,
            pairs=[list(pair) for pair in group.slow.pairs],
        )
        for group in (worst.slow_groups if worst is not None else [])
    ]
