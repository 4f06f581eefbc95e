"""What each rank costs the job, measured over all its work: slow devices, more work, and host time of its own.

A *candidate* is one reason on one rank, with how much time it takes beyond what is usual elsewhere. It is asked for
by a test against the scatter of the steps, with the number of questions taken into account, and not by a threshold on
pieces: a device that is 15 % slower shows in the sum of all kernels, however many calls they are cut into by. What it
costs is what the replay gains when that time is gone.

Candidates hide each other: of two slow devices that stand side by side neither costs anything alone. So all are
mended together, and each is asked what it gains once the others are mended. Those that gain nothing that matters are
left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.matching.clocks import Clocks
from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.segments import Plan
from rankscope.analysis.replay.what_if import Replay
from rankscope.analysis.stragglers.cost import Lateness
from rankscope.analysis.stragglers.kernel_pace import KernelPace, kernel_pace
from rankscope.analysis.stragglers.kernel_table import KernelTable, kernel_table
from rankscope.analysis.stragglers.kernel_work import kernel_work
from rankscope.analysis.stragglers.own_delays import own_delays
from rankscope.analysis.stragglers.profile import Profile, work_difference
from rankscope.analysis.stragglers.statistics import discoveries, mean_error, normal_tail, robust_scatter
from rankscope.chance import student_tail
from rankscope.thresholds import MATTERS

__all__ = ["CONFIDENCE", "OTHER_MODEL_ERROR", "Candidate", "Measured", "Window", "above", "join", "measure"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

FALSE = 0.01
"""Share of the candidates that may be none."""
CONFIDENCE = 1.96
MODEL_ERROR = {"slow_compute": 0.10, "uneven_work": 0.20, "extra_compute": 0.20}
OTHER_MODEL_ERROR = 0.05
"""Of the cost, by cause: what the replay itself is wrong by. Held against the same job simulated without the fault,
85 % of the costs were nearer than this (benchmarks/truth.py, three seeds). Most are too low, since peers that wait
beside a collective run slower and seem to need that time."""
ROUNDS = 3
"""Of comparing with those that were not slow in the round before."""
MOST = 64
"""Candidates whose replays are made; more of them are no few culprits."""


@dataclass(slots=True)
class Candidate:
    """One reason on one rank, and what mending it takes away."""

    column: int
    cause: str
    edges: I64
    less: F64
    """ns off the work of each of these edges of the graph."""
    extra: float
    """ns beyond what is usual, over the window."""
    error: float
    """Standard error of that, as a share of it."""


@dataclass(slots=True)
class Measured:
    """What one rank costs. ns."""

    column: int
    gains: F64
    """Per step of the replay: what mending this rank gains, once the ranks ``beside`` are mended."""
    error: float
    """Half width of the 95 % interval of the mean gain."""
    explained: dict[str, float]
    """Cause -> ns beyond what is usual, over the window."""
    beside: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Window:
    """What the candidates are looked for in."""

    replay: Replay
    views: Sequence[RankView]
    clocks: Clocks
    plan: Plan
    profiles: Sequence[Profile]
    trusted: NDArray[np.bool_]
    """Per rank: it lost no more device records than others."""
    complete: bool
    """No rank lost device records: their number can be compared."""

    def edges(self, column: int, label: Work) -> I64:
        """Edges that carry this rank's work of a kind."""
        graph = self.replay.graph
        return np.flatnonzero((graph.owner == column) & (graph.label == label) & (graph.work > 0))


def measure(window: Window, step_ns: float) -> list[Measured]:
    """Ranks that cost the job more than :data:`MATTERS` of its step, the costliest first."""
    replay, found = window.replay, list[Candidate]()
    if any(view.device for view in window.views):
        found += _delays(window)
        table = kernel_table(window.views, window.plan.peers)
        if len(table.rank):
            found += _slow_devices(window, table)
            found += _more_work(window, table) if window.complete else []
    found = [c for c in found if window.trusted[c.column]]
    least = MATTERS * step_ns * replay.steps
    extra: dict[int, float] = {}
    for candidate in found:
        extra[candidate.column] = extra.get(candidate.column, 0.0) + candidate.extra
    # mending gains no more than the time that it takes away
    columns = sorted((r for r in extra if extra[r] >= least), key=lambda r: -extra[r])[:MOST]
    gains: dict[int, F64] = {}
    while columns:
        together = replay.gains(_mended(replay, found, columns))
        gains = {r: together - replay.gains(_mended(replay, found, [o for o in columns if o != r])) for r in columns}
        kept = [r for r in columns if gains[r].sum() >= least]
        if len(kept) == len(columns):
            break
        columns = kept
    ranks = [_measured(r, gains[r], [c for c in found if c.column == r], columns) for r in columns]
    return sorted(ranks, key=lambda rank: -float(rank.gains.sum()))


def join(lateness: Sequence[Lateness], ranks: Sequence[Measured]) -> None:
    """Put what was measured beside what was found segment by segment.

    Where both speak of a rank, what gains more stays: kernels that never ran alone are in the segments only. That the
    rank is late has been tested all the same.
    """
    for rank in ranks:
        late = lateness[rank.column]
        if rank.gains.sum() < late.gains.sum():
            late.error = rank.error * float(late.gains.sum() / rank.gains.sum())
            continue
        late.gains, late.error, late.beside = rank.gains, rank.error, rank.beside
        late.explained = dict(rank.explained)
        late.excess = sum(rank.explained.values())


def _measured(column: int, gains: F64, reasons: Sequence[Candidate], columns: Sequence[int]) -> Measured:
    extra = sum(c.extra for c in reasons)
    share = float(np.sqrt(sum((c.error * c.extra) ** 2 for c in reasons))) / max(extra, 1e-9)
    mean = float(gains.mean())
    explained: dict[str, float] = {}
    for reason in sorted(reasons, key=lambda c: -c.extra):
        explained[reason.cause] = explained.get(reason.cause, 0.0) + reason.extra
    model = max(MODEL_ERROR.get(cause, OTHER_MODEL_ERROR) for cause in explained)
    error = mean * float(np.hypot(CONFIDENCE * share, model))
    return Measured(column, gains, error, explained, [c for c in columns if c != column])


def _mended(replay: Replay, found: Sequence[Candidate], columns: Sequence[int]) -> F64:
    work: F64 = replay.graph.work.copy()
    for candidate in found:
        if candidate.column in columns:
            work[candidate.edges] -= candidate.less
    return np.maximum(work, 0.0)


# ------------------------------------------------------------ slow devices


def _slow_devices(window: Window, table: KernelTable) -> list[Candidate]:
    pace = kernel_pace(table)
    if pace is None:
        return []
    pace = pace.without(~window.trusted[:, None] & np.ones(pace.log.shape, np.bool_))
    log, error = _slower(pace)
    for _ in range(ROUNDS):
        slow = (log > 0) | ~window.trusted[:, None]
        if not (log > 0).any():
            return []
        pace = pace.without(slow)
        log, error = _slower(pace)
        if ((log > 0) | ~window.trusted[:, None] == slow).all():
            break
    kind_of_pair = np.zeros(int(table.pair.max()) + 1, np.int64)
    kind_of_pair[table.pair] = table.kind
    place, size = _segments(window, table), window.plan.size
    found = []
    for column in np.flatnonzero((log > 0).any(axis=1)).tolist():
        slow = log[column] > 0
        mine = table.rank == column
        longer = pace.by_kind(column, slow, kind_of_pair, int(table.kind.max()) + 1)
        longer = np.where(np.isnan(longer), log[column].max(), longer)
        length = table.length[mine].astype(np.float64)
        usual = np.where(slow[table.step[mine]], length * np.exp(-longer[table.kind[mine]]), length)
        own, other = (np.bincount(place[mine], ns, size)[:size] for ns in (length, usual))
        share = np.clip(np.divide(own - other, own, out=np.zeros(size), where=own > 0), 0.0, 1.0)
        edges, graph = window.edges(column, Work.DEVICE), window.replay.graph
        less = graph.work[edges] * share[graph.segment[edges]]
        relative = float(error[column]) / float(log[column].max())
        found.append(Candidate(column, "slow_compute", edges, less, float((own - other).sum()), relative))
    return found


def _slower(pace: KernelPace) -> tuple[F64, F64]:
    """(R, S) logarithm by which a rank is slower in a step, 0 where it is not, and its standard error per rank."""
    always, mean, error = above(pace.log)
    log = np.where(always[:, None], mean[:, None], 0.0) * np.ones_like(pace.log)
    scatter = robust_scatter(pace.log[~always])
    if scatter > 0:
        steps = discoveries(normal_tail(pace.log / scatter), FALSE) & ~always[:, None]
        log = np.where(steps, pace.log, log)
        error = np.where(always, error, scatter)
    return log, error


def above(values: F64) -> tuple[NDArray[np.bool_], F64, F64]:
    """Which rows are above 0 beyond the scatter of their columns (NaN: unknown), their means and errors of these."""
    known = [own[~np.isnan(own)] for own in values]
    mean = np.array([float(own.mean()) if len(own) else 0.0 for own in known])
    error = np.array([mean_error(own) for own in known])
    t = np.divide(mean, error, out=np.where(mean > 0, np.inf, -np.inf), where=error > 0)
    p = np.array([_tail(float(value), len(own)) for value, own in zip(t, known, strict=True)])
    return discoveries(p, FALSE) & (mean > 0), mean, error


def _tail(t: float, steps: int) -> float:
    if steps < 2:
        return 1.0
    return student_tail(t, steps - 1) if np.isfinite(t) else float(t < 0)


# ------------------------------------------------------------ more work


def _more_work(window: Window, table: KernelTable) -> list[Candidate]:
    work = kernel_work(table, window.plan.peers)
    always, mean, error = above(work.log)
    found = []
    place = _segments(window, table)
    size = window.plan.size
    for column in np.flatnonzero(always).tolist():
        peers = [p for p in window.plan.peers[column] if p != column]
        own, *others = (
            np.bincount(place[table.rank == r], work.usual[table.rank == r], size)[:size] for r in (column, *peers)
        )
        usual = np.median(others, axis=0)
        share = np.divide(own - usual, own, out=np.zeros(size), where=own > 0)
        edges = window.edges(column, Work.DEVICE)
        graph = window.replay.graph
        less = graph.work[edges] * np.maximum(share[graph.segment[edges]], 0.0)
        extra = float(np.maximum(own - usual, 0.0).sum())
        cause = _cause(window, column, peers, np.flatnonzero(own > usual))
        if cause is not None:
            found.append(Candidate(column, cause, edges, less, extra, float(error[column] / mean[column])))
    return found


def _segments(window: Window, table: KernelTable) -> I64:
    """The segment in which each kernel was launched."""
    place = np.empty(len(table.rank), np.int64)
    for column in range(table.ranks):
        mine = table.rank == column
        place[mine] = np.searchsorted(window.plan.times[column], table.launched[mine]) + window.plan.shift[column]
    return np.minimum(place, window.plan.size - 1)


def _cause(window: Window, column: int, peers: Sequence[int], segments: I64) -> str | None:
    views, profiles = window.views, window.profiles
    middle = peers[len(peers) // 2]
    kinds = work_difference(views[column], views[middle], profiles[column], profiles[middle], segments)
    return next((kind for kind in kinds if kind != "slow_compute"), None)


# ------------------------------------------------------------ host time of its own


def _delays(window: Window) -> list[Candidate]:
    delays = own_delays(window.views, window.profiles)
    if not delays:
        return []
    steps = max(len(d.beyond) for d in delays)
    values = np.full((len(delays), steps), np.nan)
    for row, delay in enumerate(delays):
        values[row, : len(delay.beyond)] = delay.beyond
    always, mean, error = above(values)
    found = []
    for row in np.flatnonzero(always).tolist():
        delay = delays[row]
        edges = window.edges(delay.column, Work.HOST)
        graph, clocks = window.replay.graph, window.clocks
        # a host edge is the time from where its source goes on to its target
        spans = tuple(clocks.aligned(delay.column, part).astype(np.int64) for part in delay.spans)
        end = _targets(window, edges)
        begin = end - graph.work[edges]
        inside = intervals.cover((spans[0], spans[1]), begin.astype(np.int64), end.astype(np.int64))
        share = float(delay.beyond.sum() / delay.total.sum())
        less = np.minimum(inside * share, graph.work[edges])
        relative = float(error[row] / mean[row])
        found.append(Candidate(delay.column, delay.cause, edges, less, float(delay.beyond.sum()), relative))
    return found


def _targets(window: Window, edges: I64) -> F64:
    """Recorded time of the nodes that edges lead to."""
    graph = window.replay.graph
    node = np.searchsorted(graph.first, edges, side="right") - 1
    times: F64 = graph.recorded[node]
    return times
