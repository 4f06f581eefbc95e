"""Delay of the ranks by contention for CPUs: the scheduler's counts of each rank's threads, combined with its trace.

A step of a thread consists of time on a CPU, time on the run queue (runnable but not running), and time in which it
waited for something else: a peer, a sleep, a device. The first two are counted by the kernel, and waits for peers are
in the trace. So a rank's own time is known on a busy machine almost as well as on an idle one: on two cores shared by 8
to 12 busy processes the CPU time of a step scatters by 5 % while its duration triples.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.cpu_only import cpu_gaps, cpu_issues, cpu_waits
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.tables.cpu_of_others import cpu_of_others
from rankscope.analysis.windows.analyse import ALONE, WindowResult
from rankscope.records.evidence import Contention, RankCpu
from rankscope.records.manifest import RunManifest
from rankscope.records.rank import RankRecord, ThreadTimes
from rankscope.statistics.medians import median_of_others

__all__ = ["contention"]

F64 = NDArray[np.float64]

POOLED = 0.1
"""A thread of OpenMP's pool takes part in the training thread's parallel work; one with less than this share of the
training thread's CPU time does not belong to the pool."""


def contention(windows: Sequence[WindowResult], manifest: RunManifest | None) -> Contention | None:
    """Return the contention in all windows, their steps concatenated; None if nothing was counted."""
    records = {(r.attempt, r.window, r.rank): r for w in manifest.windows for r in w.records} if manifest else {}
    found: dict[int, RankCpu] = {}
    gains: list[float] = []
    ranks: set[int] | None = None
    for window in windows:
        if window.refused == ALONE:  # no peer shows what others take from this rank
            continue
        own = [
            _rank(window, column, records.get((window.attempt, window.window, view.rank)))
            for column, view in enumerate(window.views)
        ]
        _own_threads([cpu for cpu in own if cpu is not None])
        known = {cpu.rank for cpu in own if cpu is not None}
        if not known:
            continue
        ranks = known if ranks is None else ranks & known
        for cpu in own:
            if cpu is not None:
                _append(found, cpu)
        gains += _gains(window, own)
    kept = [found[rank] for rank in sorted(ranks or ())]
    if not kept:
        return None
    recorded, step_ms = [records[key] for key in records if key[2] in found], _mean_step(windows)
    others = {host: rate * step_ms for host, rate in cpu_of_others(recorded).items()}
    beside = {host: rate * step_ms for host, rate in cpu_of_others(recorded, "host_busy_ms").items()}
    return Contention(ranks=kept, gains_ms=gains, others_ms=others, beside_ms=beside, cpus=_cpus(recorded, others))


def _mean_step(windows: Sequence[WindowResult]) -> float:
    lengths = [w.step_ns / 1e6 for w in windows if w.step_ns]
    return float(np.mean(lengths)) if lengths else 0.0


def _cpus(records: Sequence[RankRecord], hosts: Collection[str]) -> dict[str, float]:
    """Return the number of CPUs that the job may use on these hosts, where it is known."""
    last = {r.host: r.host_load[-1].cpus for r in records if r.host in hosts and r.host_load}
    return {host: cpus for host, cpus in last.items() if cpus}


def _append(found: dict[int, RankCpu], cpu: RankCpu) -> None:
    if (before := found.get(cpu.rank)) is None:
        found[cpu.rank] = cpu
        return
    whole = len(before.own_ms) == len(before.held_ms) and len(cpu.own_ms) == len(cpu.held_ms)
    before.own_ms = before.own_ms + cpu.own_ms if whole else []
    before.least_ms = before.least_ms + cpu.least_ms if whole else []
    shared = before.named_ms.keys() & cpu.named_ms.keys()
    before.named_ms = {cause: before.named_ms[cause] + cpu.named_ms[cause] for cause in sorted(shared)}
    before.held_ms += cpu.held_ms
    before.cpu_ms += cpu.cpu_ms
    before.script_ms += cpu.script_ms


def _rank(window: WindowResult, column: int, record: RankRecord | None) -> RankCpu | None:
    """Return the counts of one rank in one window. Steps that the trace lacks or that were not counted are left out."""
    view = window.views[column]
    if record is None or not record.threads or record.first_step is None:
        return None
    counted = len(record.threads[0].wait_ms)
    index = view.trace.steps.number.astype(np.int64) - record.first_step
    if not len(index) or index.min() < 0 or index.max() >= counted:
        return None
    tids = set(np.unique(view.trace.events.tid[view.chain]).tolist())
    driving, pool = _driving(record.threads, tids)
    held = np.sum([t.wait_ms for t in driving], axis=0)[index]
    if pool:  # the training thread waits for the slowest thread of its pool
        held = held + np.max([t.wait_ms for t in pool], axis=0)[index]
    cpu = np.sum([t.cpu_ms for t in driving], axis=0)[index]
    script = np.zeros(counted)
    for thread in (t for t in record.threads if t.kind == "python"):
        script += thread.cpu_ms
    return RankCpu(
        rank=view.rank,
        host=record.host,
        held_ms=held.tolist(),
        cpu_ms=cpu.tolist(),
        own_ms=[] if view.device else _own(view, held).tolist(),
        least_ms=[] if view.device else _least(view, held).tolist(),
        named_ms=_named(window, column),
        script_ms=script[index].tolist(),
    )


def _own_threads(ranks: Sequence[RankCpu]) -> None:
    """Subtract from a rank's delay the CPU time of its script's other threads, as far as it exceeds its peers'."""
    if len({len(r.script_ms) for r in ranks}) != 1 or len(ranks) < 2:
        return
    more = np.array([r.script_ms for r in ranks])
    more = np.maximum(more - median_of_others(more.T).T, 0.0)
    for rank, extra in zip(ranks, more, strict=True):
        own = np.minimum(extra, rank.held_ms)
        rank.held_ms = (np.array(rank.held_ms) - own).tolist()
        if rank.own_ms:
            rank.own_ms = (np.array(rank.own_ms) + own).tolist()
            rank.least_ms = (np.array(rank.least_ms) + own).tolist()


def _driving(threads: Sequence[ThreadTimes], tids: set[int]) -> tuple[list[ThreadTimes], list[ThreadTimes]]:
    """Return the threads that drive the training (the trace has their operators), and the OpenMP threads they wait
    for."""
    training = threads[0]
    native = [t for t in threads if t.kind == "native"]
    driving = [training, *(t for t in native if t.tid in tids and t.name != training.name)]
    least = POOLED * sum(training.cpu_ms)
    return driving, [t for t in native if t.name == training.name and sum(t.cpu_ms) >= least]


def _own(view: RankView, held: F64) -> F64:
    """Return the host's own time per step, ms: without waits for peers and without waits for a CPU."""
    steps = view.trace.steps
    begin, resume, row = cpu_waits(view)
    step = np.searchsorted(steps.start, begin, side="right") - 1
    inside = step >= 0
    waited = np.bincount(step[inside], (resume - begin)[inside], len(steps)) / 1e6
    # Time after the end of a call in which the thread that waited for it was not on a CPU yet is in both, and counts
    # once.
    ends = view.trace.events.end[view.trace.collectives.event]
    waking = np.maximum(resume - ends[row], 0)[inside] if len(row) else np.zeros(0)
    twice = np.bincount(step[inside], waking, len(steps)) / 1e6
    length = (steps.end - steps.start) / 1e6
    return np.asarray(length - waited - held + np.minimum(twice, held), np.float64)


def _least(view: RankView, held: F64) -> F64:
    """Return a lower bound of the host's own time per step, ms.

    If a rank was delayed often, waits for its peers are missed, because it continues long after the call's end.
    """
    steps, calls = view.trace.steps, view.trace.collectives
    begin, resume = cpu_gaps(view)
    under_way = intervals.union(cpu_issues(view), view.trace.events.end[calls.event])
    step = np.searchsorted(steps.start, begin, side="right") - 1
    inside = step >= 0
    maybe = np.bincount(step[inside], intervals.cover(under_way, begin, resume)[inside], len(steps)) / 1e6
    return np.asarray((steps.end - steps.start) / 1e6 - maybe - held, np.float64)


def _named(window: WindowResult, column: int) -> dict[str, list[float]]:
    """Return the time per step of the causes that this rank's trace shows, ms."""
    steps, step_of_segment = np.arange(window.views[column].steps), _steps_of_segments(window, column)
    found = {}
    for cause, length in window.profiles[column].length.items():
        table = [float(length[: len(step_of_segment)][step_of_segment == step].sum()) / 1e6 for step in steps.tolist()]
        found[cause] = table
    return found


def _steps_of_segments(window: WindowResult, column: int) -> NDArray[np.int64]:
    """Return the index of the step in which the call at the end of each segment was made; -1 for none."""
    rows, shift = window.plan.rows[column], window.plan.shift[column]
    events = window.views[column].trace.events
    found = np.full(window.plan.size, -1, np.int64)
    found[shift : shift + len(rows)] = events.step[window.views[column].trace.collectives.event[rows]]
    return found


def _gains(window: WindowResult, ranks: Sequence[RankCpu | None]) -> list[float]:
    """Return what each step would gain if no thread had waited for a CPU, ms."""
    known = [np.array(r.held_ms) for r in ranks if r is not None]
    least = np.min(known, axis=0) if len({len(k) for k in known}) == 1 else np.array([min(k.mean() for k in known)])
    replay = window.replay
    if replay is None or window.refused is not None:
        return [float(g) for g in least]
    factor = np.ones(replay.segments.host.shape)
    for column, cpu in enumerate(ranks):
        if cpu is not None:
            host = replay.segments.host[column] / 1e6
            _lower(factor[column], host, _steps_of_segments(window, column), np.array(cpu.held_ms))
    return [float(g) / 1e6 for g in replay.gains(replay.hosts_scaled(factor))]


def _lower(factor: F64, host: F64, steps: NDArray[np.int64], held: F64) -> None:
    """Distribute the delay of a rank in a step over the segments that end in it, in proportion to their duration."""
    for step, wait in enumerate(held.tolist()):
        of_step = np.flatnonzero(steps == step)
        whole = float(host[of_step].sum())
        if whole > 0:
            factor[of_step] = 1.0 - min(wait / whole, 1.0)
