"""Pipeline stages: how long each computes in forward and backward, and the gain if the longest computed less.

A stage has no peer that does the same work. That it computes longer than the others is therefore no lateness, but it
costs the same: every micro-batch passes through the longest stage. Work is what is left without waiting, and without
host time that has a cause of its own (input, pauses), which is compared between all ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.computed_again import NODE
from rankscope.analysis.operators.compare import operator_excess
from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.segments import Plan, stages_of
from rankscope.analysis.replay.what_if import Replay
from rankscope.analysis.stragglers.candidates import Window
from rankscope.analysis.stragglers.model_error import model_error
from rankscope.analysis.stragglers.statistics import confidence, mean_error
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.evidence import StageBalance, StageWork
from rankscope.trace.names import Kind

__all__ = ["stage_balance"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

FORWARD, BACKWARD = 0, 1
"""Parts of a step. Everything that is not in the backward (the optimizer too) counts for the first."""
CAUSE = "uneven_work"
"""The cause whose known errors of the replay apply."""


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of one rank in a window: edges of the graph, and how much of each is forward and backward, ns."""

    edges: I64
    parts: F64
    """Shape (2, edges)."""
    spent: F64
    """Per step, shape (2,), in ns."""


def stage_balance(windows: Sequence[WindowResult]) -> StageBalance | None:
    """Return the balance of the stages, pooled over the windows that were replayed; None without stages."""
    staged = [(w, found) for w in windows if w.staged and len(found := _stages(w)) > 1]
    columns = staged[0][1] if staged else []
    known = [(w, w.replay) for w, found in staged if w.replay is not None and found == columns]
    if not known:
        return None
    work = np.zeros((len(columns), 2))
    even, lowered = list[F64](), list[F64]()
    for window, replay in known:
        asked = _asked(window, replay)
        own = [_work(asked, c) for c in range(len(window.views))]
        spent = np.array([np.mean([own[c].spent for c in stage], axis=0) for stage in columns])
        work += spent * replay.steps
        even.append(replay.gains(_changed(replay, own, columns, _ratio(spent.mean(axis=0), spent))))
        lowered.append(replay.gains(_changed(replay, own, columns, _longest_lowered(spent))))
    gains = np.concatenate(lowered)
    window = known[-1][0]
    views, gain = window.views, float(gains.mean())
    scatter = confidence(len(gains)) * mean_error(gains) if len(gains) > 1 else abs(gain)
    per_step = work / len(gains) / 1e6
    total = per_step.sum(axis=1)
    longest, shortest = columns[int(np.argmax(total))][0], columns[int(np.argmin(total))][0]
    return StageBalance(
        stages=[
            StageWork(ranks=[views[c].rank for c in stage], forward_ms=float(ms[FORWARD]), backward_ms=float(ms[1]))
            for stage, ms in zip(columns, per_step, strict=True)
        ],
        lowered_ms=gain / 1e6,
        error_ms=float(np.hypot(scatter, gain * model_error(window.mesh, CAUSE))) / 1e6,
        even_ms=float(np.concatenate(even).mean()) / 1e6,
        operators=operator_excess(views[longest], views[shortest]),
    )


def _stages(window: WindowResult) -> list[list[int]]:
    """Return the columns of each stage, in order."""
    found: dict[int, list[int]] = defaultdict(list)
    for column, stage in enumerate(stages_of(window.views, window.matched)):
        found[stage].append(column)
    return [found[stage] for stage in sorted(found)]


def _asked(window: WindowResult, replay: Replay) -> Window:
    """Return the window as the search for late ranks sees it."""
    trusted = np.ones(len(window.views), np.bool_)
    return Window(
        replay, window.views, window.clocks, window.plan, window.profiles, window.waits.steps, trusted,
        not window.partial, window.matched, window.mesh,
    )  # fmt: skip


def _work(window: Window, column: int) -> _Work:
    view = window.views[column]
    if not view.device:
        edges, backward = window.host_time(column, _backward(view))
        _, named = window.host_time(column, window.profiles[column].named)
        left = np.maximum(window.replay.graph.work[edges] - named, 0.0)
        inside = np.minimum(backward, left)
        parts = np.stack((left - inside, inside))
        return _Work(edges, parts, _per_step(window.replay, edges, parts))
    edges, graph = window.edges(column, Work.DEVICE), window.replay.graph
    kernels = _Kernels.of(window, column)
    share = kernels.backward_share(window.plan)[graph.segment[edges]]
    parts = np.stack((graph.work[edges] * (1.0 - share), graph.work[edges] * share))
    return _Work(edges, parts, kernels.per_step)


def _per_step(replay: Replay, edges: I64, parts: F64) -> F64:
    """Return the sums of the parts of these edges' work, shape (2, edges), per step.

    The work after the last call of a window is not in the graph: steps are counted from end to end of their calls,
    where there are two or more.
    """
    graph, ends = replay.graph, replay.recorded
    until = graph.recorded[np.searchsorted(graph.first, edges, side="right") - 1]
    counted = (until > ends[0]) & (until <= ends[-1]) if len(ends) > 1 else np.ones(len(edges), np.bool_)
    spent: F64 = parts[:, counted].sum(axis=1) / max(len(ends) - 1, 1)
    return spent


def _backward(view: RankView) -> intervals.Spans:
    """Return the host time in nodes of the backward, on any thread."""
    events = view.trace.events
    nodes = view.chain & view.named(lambda name: name.startswith(NODE))
    return intervals.union(events.start[nodes], events.end[nodes])


@dataclass(frozen=True, slots=True)
class _Kernels:
    """The kernels of one rank, each counted once: an edge of the graph repeats a kernel for all that waits for it."""

    column: int
    launched: I64
    """When the host launched each, ns, the rank's own clock."""
    parts: F64
    """Duration in forward and backward, shape (2, kernels), ns."""
    per_step: F64
    """The same of a recorded step, shape (2,)."""

    @staticmethod
    def of(window: Window, column: int) -> _Kernels:
        view = window.views[column]
        events = view.trace.events
        rows = np.flatnonzero((view.kind == Kind.COMPUTE) & (events.launch >= 0))
        launched = events.start[events.launch[rows]]
        length = events.duration[rows].astype(np.float64)
        inside = np.where(intervals.contains(_backward(view), launched), length, 0.0)
        parts, step = np.stack((length - inside, inside)), events.step[rows]
        steps = np.unique(step[step >= 0])
        per_step = parts[:, step >= 0].sum(axis=1) / max(len(steps), 1)
        return _Kernels(column, launched, parts, per_step)

    def backward_share(self, plan: Plan) -> F64:
        """Return which share of the rank's device work in each segment the backward launched."""
        place = plan.segment_of(self.column, self.launched)
        whole, part = (np.bincount(place, ns, plan.size) for ns in (self.parts.sum(axis=0), self.parts[1]))
        return np.divide(part, whole, out=np.zeros(plan.size), where=whole > 0)


def _ratio(target: F64, spent: F64) -> F64:
    return np.divide(target * np.ones_like(spent), spent, out=np.ones_like(spent), where=spent > 0)


def _longest_lowered(spent: F64) -> F64:
    """Return the factors, shape (stages, 2), that bring the longest stage to the median of the others where it has
    more."""
    longest = int(np.argmax(spent.sum(axis=1)))
    factor = np.ones_like(spent)
    usual = np.median(np.delete(spent, longest, axis=0), axis=0)
    factor[longest] = np.minimum(_ratio(usual, spent[longest]), 1.0)
    return factor


def _changed(replay: Replay, own: Sequence[_Work], columns: Sequence[Sequence[int]], factor: F64) -> F64:
    """Return the work per edge with forward and backward of each stage times ``factor``, shape (stages, 2)."""
    work: F64 = replay.graph.work.copy()
    for stage, ranks in enumerate(columns):
        for column in ranks:
            work[own[column].edges] += (factor[stage] - 1.0) @ own[column].parts
    return np.maximum(work, 0.0)
