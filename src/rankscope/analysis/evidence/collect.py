"""Collect the numbers of all windows into the evidence that the rules of ``diagnose`` read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.evidence.computed_again import again_ms
from rankscope.analysis.evidence.micro_batches import micro_batches
from rankscope.analysis.evidence.missing_ranks import holds, lost_partners
from rankscope.analysis.evidence.pageable import pageable_ms
from rankscope.analysis.evidence.places import find_places
from rankscope.analysis.evidence.program import (
    OPTIMIZER_STEP,
    REDUCER,
    compute_ms,
    has_shapes,
    host_lines,
    host_ms,
    most_called,
    uses,
)
from rankscope.analysis.evidence.spare_cpus import spare_cpus
from rankscope.analysis.evidence.work_gains import mean_gain_ms, work_gains
from rankscope.analysis.operators.suspects import name_what_they_do
from rankscope.analysis.rank.view import name_mask
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.what_if import Replay
from rankscope.analysis.stragglers.cost import sign_flip
from rankscope.analysis.stragglers.model_error import model_error
from rankscope.analysis.stragglers.profile import ATTRIBUTES, work_difference
from rankscope.analysis.tables.kernels import median_kernel_us
from rankscope.analysis.tables.modules import exposed_by_module
from rankscope.analysis.windows.analyse import ALONE, WindowResult
from rankscope.causes import allocator
from rankscope.causes.table import BY_NAME
from rankscope.records.evidence import Anomaly, Evidence, GroupDelay, Suspect
from rankscope.records.rank import RankRecord
from rankscope.records.rows import ModuleRow, RankIdle, RankSummary
from rankscope.statistics.medians import median_of_others
from rankscope.trace.columns import Category
from rankscope.trace.names import Kind

__all__ = ["collect"]

F64 = NDArray[np.float64]

UNEVEN_DEVICE = 1.4
"""Ratio of a rank's device work to its peers' from which on it is reported. Kernels that overlap a waiting collective
reach 1.32 without a fault."""
UNEVEN_CPU = 1.2


def collect(
    windows: Sequence[WindowResult],
    ranks: Sequence[RankSummary],
    idle: Sequence[RankIdle],
    modules: Sequence[ModuleRow] = (),
    recording_overhead_pct: float | None = None,
    records: Sequence[RankRecord] = (),
) -> Evidence:
    """Return the evidence of a run: windows are pooled, their steps concatenated."""
    usable = [r for r in ranks if r.compute_pct is not None]
    # includes windows without a replay because no rank makes others wait
    trusted = [w for w in windows if w.refused is None]
    replayed = [w for w in trusted if w.replay is not None]
    total = sum(w.matched.total for w in windows)
    evidence = Evidence(
        ranks=[r.rank for r in usable],
        missing=[r.rank for r in ranks if r.status in {"missing", "corrupt"}],
        incomplete={rank: words for w in windows for rank, words in {**w.left, **w.partial}.items()},
        unsound=sorted({rank for w in windows for rank in w.unsound | w.left.keys()}),
        hosts=len({r.host for r in usable if r.host}),
        optimizer_ms=_mean([host_ms(v, OPTIMIZER_STEP) for w in windows for v in w.views]),
        steps=sum(w.step_count for w in windows),
        step_ms=_step(windows),
        mean_step_ms=_mean_step(windows),
        device=any(v.device for w in windows for v in w.views),
        compute_ms=compute_ms(usable),
        uses=uses([v for w in windows for v in w.views]),
        shapes=any(has_shapes(v) for w in windows for v in w.views[:1]),
        stacks=any(len(v.trace.python) for w in windows for v in w.views),
        **most_called([v for w in windows for v in w.views]),
        calls=sum(len(w.matched) for w in windows),
        matched_pct=100.0 * sum(w.matched.matched for w in windows) / total if total else None,
        unmatched=dict(sum((w.matched.unmatched for w in windows), Counter[str]()).most_common()),
        clock_spread_us=max((w.clocks.spread_ns for w in windows), default=0.0) / 1e3,
        refused=None if trusted else next((w.refused for w in windows if w.refused), "no window"),
        pipeline=any(w.pipeline for w in windows),
        staged=any(w.staged for w in windows),
        micro_batches=micro_batches(windows),
        compute_pct=_mean([r.compute_pct for r in usable]),
        exposed_comm_pct=_mean([r.exposed_comm_pct for r in usable]),
        overlap_pct=_mean(known) if (known := [r.overlap_pct for r in usable if r.overlap_pct is not None]) else None,
        idle_pct=_mean([r.idle_pct for r in usable]),
        waiting_ms=_mean([i.waiting_ms for i in idle]),
        transfer_ms=_mean([i.transfer_ms for i in idle]),
        input_ms=_mean([i.input_ms for i in idle]),
        host_ms=_mean([i.host_ms for i in idle]),
        most_host_ms=max((i.host_ms for i in idle), default=None),
        copy_ms=_mean([i.copy_ms for i in idle]),
        kernel_us=median_kernel_us([v for w in windows for v in w.views]),
        launches=_launches(windows),
        groups=sorted({f"{c.name} {list(c.ranks)}" for w in windows for c in w.matched.channels}),
    )
    told = replayed or [w for w in windows if w.replay is not None and w.refused == ALONE]
    if told:
        evidence.work_gains, evidence.pageable_ms = work_gains(told), pageable_ms(told)
        evidence.again_ms = again_ms(told)
        evidence.host_gain_ms = _gain(told, lambda r: r.gains(r.without(Work.HOST)))
    if trusted:
        shows = max(w.visible for w in trusted)
        evidence.visible_pct = 100.0 * shows if np.isfinite(shows) else None
        evidence.screened = not replayed
        evidence.places = find_places(trusted, ranks, records)
        evidence.suspects = _suspects(trusted, ranks)
        most, rank, second = _most_waiting(idle)
        for suspect in evidence.suspects:  # the report shows no waiting that a peer's own work overlaps
            suspect.held_ms = min(suspect.held_ms, second if suspect.rank == rank else most)
        name_what_they_do(evidence.suspects, trusted, evidence.step_ms or 0.0)
        evidence.slow_groups = _slow_groups(replayed)
        if replayed:
            evidence.network_gain_ms = _gain(replayed, Replay.ideal_network)
            evidence.overlap_gain_ms = _gain(replayed, Replay.hidden)
            evidence.balance_gain_ms = _gain(replayed, lambda r: r.gains(r.balanced()))
        if not evidence.pipeline:
            evidence.anomalies = _anomalies(trusted, evidence.step_ms or 0.0)
    evidence.allocator_ms = _allocator_ms(windows)
    evidence.recording_ms = _recording_ms(evidence.whole_step_ms, recording_overhead_pct)
    evidence.before_ms = (
        _mean(before) if (before := [_mean(r.steps.before_ms) for r in records if r.steps.before_ms]) else None
    )
    evidence.modules = exposed_by_module(windows, modules)
    evidence.spare_cpus = spare_cpus(records)
    evidence.host_lines = host_lines(windows, idle) if evidence.stacks else {}
    _repeats(windows, evidence)
    return evidence


def _most_waiting(idle: Sequence[RankIdle]) -> tuple[float, int, float]:
    """Return the longest exposed waiting in collectives, ms per step, of which rank it is, and the longest of any other
    rank."""
    most, rank = max(((i.waiting_ms or 0.0, i.rank) for i in idle), default=(0.0, -1))
    return most, rank, max((i.waiting_ms or 0.0 for i in idle if i.rank != rank), default=0.0)


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


def _launches(windows: Sequence[WindowResult]) -> float:
    rates = [
        float(((v.kind == Kind.COMPUTE) & (v.trace.events.step >= 0)).sum()) / v.steps
        for w in windows
        for v in w.views
        if v.device and v.steps
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
            ranks=list(group.ranks),
            kinds=list(group.kinds),
            ratio=group.ratio,
            cost_ms=float(group.gains.mean()) / 1e6,
            error_ms=group.error / 1e6,
        )
        for group in (worst.slow_groups if worst is not None else [])
    ]


def _suspects(windows: Sequence[WindowResult], ranks: Sequence[RankSummary]) -> list[Suspect]:
    gains: dict[int, list[F64]] = defaultdict(list)
    excess: dict[int, float] = defaultdict(float)
    explained: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    even: dict[int, list[float]] = defaultdict(list)
    beside: dict[int, set[int]] = defaultdict(set)
    together: dict[int, float] = defaultdict(float)
    held: dict[int, Counter[tuple[int, ...]]] = defaultdict(Counter)
    measured: dict[int, list[float]] = defaultdict(list)
    model: list[float] = []
    for window in windows:
        for view, late, own_holds in zip(window.views, window.lateness, holds(window), strict=False):
            if view.rank in window.unsound:
                continue  # whether late or not, its own numbers do not show why
            held[view.rank] += own_holds
            gains[view.rank].append(late.gains)
            excess[view.rank] += late.excess
            even[view.rank].append(late.uniform)
            if late.error is not None:
                measured[view.rank].append(late.error)
            beside[view.rank] |= {window.views[c].rank for c in late.beside}
            together[view.rank] += float((late.gains if late.together is None else late.together).sum())
            for cause, ns in late.explained.items():
                explained[view.rank][cause] += ns
        if window.replay is not None:
            model.append(window.replay.error * (window.step_ns or 0.0) + 2.0 * window.clocks.spread_ns)
    absent = {r.rank for r in ranks if r.compute_pct is None}
    views = {v.rank: v for w in windows for v in w.views}
    waits = {r.rank: r.caused_wait_ms_per_step or 0.0 for r in ranks}
    found = []
    for rank, parts in gains.items():
        per_step = np.concatenate(parts)
        count = max(len(per_step), 1)
        longest = held[rank].most_common(1)
        lost, group = lost_partners(views[rank], longest[0][0], absent) if longest else ([], "")
        spread = float(per_step.std(ddof=1)) / np.sqrt(count) if count > 1 else float(per_step.sum())
        leading = max(explained[rank], key=lambda c: explained[rank][c], default=None)
        known = 0.0 if leading is None else model_error(windows[-1].mesh, leading)
        if measured[rank]:
            spread = float(np.mean(measured[rank]))
        else:
            spread = float(np.hypot(spread, known * per_step.mean()))
        found.append(
            Suspect(
                rank=rank,
                cost_ms=float(per_step.sum()) / count / 1e6,
                error_ms=float(np.hypot(spread, max(model, default=0.0))) / 1e6,
                gains_ms=[float(g) / 1e6 for g in per_step],
                measured=bool(measured[rank]),
                model_error=known,
                p_value=sign_flip(per_step),
                excess_ms=excess[rank] / count / 1e6,
                explained={c: ns / count / 1e6 for c, ns in sorted(explained[rank].items(), key=lambda i: -i[1])},
                uniform=float(np.median(even[rank])),
                beside=sorted(beside[rank]),
                together_ms=together[rank] / count / 1e6 if beside[rank] else 0.0,
                caused_wait_ms=waits.get(rank, 0.0),
                held_ms=longest[0][1] / count / 1e6 if longest else 0.0,
                lost=lost,
                lost_group=group,
            )
        )
    return sorted(found, key=lambda s: -s.cost_ms)


def _anomalies(windows: Sequence[WindowResult], step_ms: float) -> list[Anomaly]:
    """Return the ranks that spend more on something than the median of their peers, whatever it costs the job."""
    ranks = sorted({v.rank for w in windows for v in w.views} - {r for w in windows for r in w.unsound})
    place = {rank: column for column, rank in enumerate(ranks)}
    steps = max(sum(w.step_count for w in windows), 1)
    if len(ranks) < 2:
        return []
    # ms per step of each attribute; the last row is the number of syncs
    table = np.zeros((len(ATTRIBUTES) + 1, len(ranks)))
    for window in windows:
        for view, own in zip(window.views, window.profiles, strict=True):
            if view.rank not in place:
                continue
            lengths = [float(own.length[name].sum()) / 1e6 for name in ATTRIBUTES]
            table[:, place[view.rank]] += np.array([*lengths, own.count["syncs"].sum()]) / steps
    others = median_of_others(table)
    found = []
    least = max(0.02 * step_ms, 1.0)
    whole = 1e6 * max(windows[-1].step_count, 1)
    busy = [sum(u.compute for u in own) / whole for own in windows[-1].steps]
    columns = {v.rank: c for c, v in enumerate(windows[-1].views)}
    # The ranks of each team, sorted by work: the median of the others then follows for each rank directly.
    teams = {key: sorted(team, key=lambda c: busy[c]) for key, team in windows[-1].plan.teams.items()}
    for column, rank in enumerate(ranks):
        *lengths, syncs = table[:, column].tolist()
        *theirs, usual = others[:, column].tolist()
        for name, mine, peers in zip(ATTRIBUTES, lengths, theirs, strict=True):
            if BY_NAME[name].by_count:
                # The duration of a sync shows how late the device is; a large number of them is a property of the code.
                if syncs >= 5.0 and syncs >= 3.0 * usual + 5.0:
                    found.append(_anomaly(rank, name, mine, peers, (syncs, usual)))
            elif mine - peers >= least and mine >= 1.5 * peers:
                found.append(_anomaly(rank, name, mine, peers, None))
        if rank in columns:
            team = teams.get(id(windows[-1].plan.peers[columns[rank]]), [])
            found += _work_anomaly(windows[-1], columns[rank], team, busy, least)
    return found


def _anomaly(rank: int, cause: str, own: float, peers: float, counts: tuple[float, float] | None) -> Anomaly:
    return Anomaly(
        rank=rank,
        cause=cause,
        own_ms=own,
        peers_ms=peers,
        own_count=counts[0] if counts else None,
        peers_count=counts[1] if counts else None,
    )


def _work_anomaly(
    window: WindowResult, own: int, team: Sequence[int], busy: Sequence[float], least: float
) -> list[Anomaly]:
    """Report clearly more device work than the median peer has, with the reason.

    ``busy``: device work (operators on a CPU), ms per step. ``team``: the rank and its peers, sorted by their work.
    """
    if len(team) < 2:
        return []
    middle = team[(len(team) - 1) // 2]  # the median of the others, for a rank with more work than it
    limit = UNEVEN_DEVICE if window.views[own].device else UNEVEN_CPU
    if busy[own] - busy[middle] < least or busy[own] < limit * busy[middle]:
        return []
    segments = np.arange(window.plan.size)
    reasons = work_difference(
        window.views[own], window.views[middle], window.profiles[own], window.profiles[middle], segments
    )
    rank = window.views[own].rank
    return [Anomaly(rank=rank, cause=cause, own_ms=busy[own], peers_ms=busy[middle]) for cause in reasons]


def _repeats(windows: Sequence[WindowResult], evidence: Evidence) -> None:
    """Determine how many times the same gradients are reduced in a step: by equal blocks of reductions, one per
    forward."""
    for window in windows:
        if not window.step_count or not len(window.matched):
            continue
        view, mine = window.views[0], window.matched.of(0)
        step = window.waits.step[mine]
        events = view.trace.events
        roots = (events.category == Category.USER_ANNOTATION) & name_mask(
            view.trace, lambda n: n in {"DistributedDataParallel.forward", "FSDP::root_pre_forward"}
        )
        last = window.step_count - 1
        forwards = int((roots & (events.step == last)).sum())
        kinds = np.isin(np.array(window.matched.kind), ("all_reduce", "reduce_scatter"))
        chosen = mine[(step == last) & kinds[window.matched.call[mine]]]
        rows = window.matched.row[chosen]
        calls = view.trace.collectives
        sizes = [(calls.kind[r], int(calls.in_elements[r])) for r in rows.tolist()]
        if forwards < 2 or not sizes or len(sizes) % forwards:
            continue
        block = len(sizes) // forwards
        if all(sorted(sizes[i * block : (i + 1) * block]) == sorted(sizes[:block]) for i in range(forwards)):
            every = np.isin(window.matched.call, window.matched.call[chosen])
            size = window.matched.size[window.matched.call[every]]
            transfer = float((window.waits.transfer[every] / size).sum()) / 1e6
            evidence.repeats, evidence.repeat_calls = forwards, float(len(sizes) - block)
            evidence.repeat_ms = transfer * (forwards - 1) / forwards
            own = _mean([host_ms(v, REDUCER) for v in window.views])
            evidence.repeat_work_ms = 0.0 if evidence.device else own * (forwards - 1) / forwards
