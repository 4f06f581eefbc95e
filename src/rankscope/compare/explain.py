"""Why a step takes longer than that of another run: replays of it in which the other run's work replaces its own.

The window of the run is replayed with the other run's host work between any two calls, with its device work, with its
transfers, and with each combination of these. The part that a kind of work explains is its Shapley value (Lloyd
Shapley, 1953): the mean of what the step gains when it is replaced, over all orders in which the kinds can be replaced
one after the other. These values add up to the gain of all replacements; the rest of the difference is not explained.
So work that is overlapped by other work explains nothing, however much more of it there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.what_if import Replay
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.compare.template import KINDS_OF_WORK, Template, call_keys, targets
from rankscope.records.rank_window import RankWindow

__all__ = ["Explanation", "explain", "period_ns"]

F64 = NDArray[np.float64]
_LABELS = {"host": Work.HOST, "device": Work.DEVICE, "transfer": Work.TRANSFER}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Values in nanoseconds per step."""

    step: float
    """Step of the run, by its replay."""
    replaced: float
    """Step with all of the other run's work."""
    parts: dict[str, float]
    """For each kind of work, by how much it makes the step longer. The sum is ``step - replaced``."""
    by_rank: dict[str, dict[int, float]]
    """For each kind of work and rank, how much more of it there is per step, whether or not it makes the step
    longer."""


def period_ns(replay: Replay, marks: F64) -> float:
    """Return the mean step between the ends of the first step and the last; with one step, that step."""
    if len(marks) > 1:
        return float((marks[-1] - marks[0]) / replay.spans[1:].sum())
    return float(marks[0] - replay.begin) / replay.steps


def explain(window: WindowResult, summary: Sequence[RankWindow], templates: dict[int, Template]) -> Explanation | None:
    """Return how the other run's work would change the steps of a window; None if the window was not replayed.

    Args:
        window: of the run.
        summary: its ranks, in the order of the window's columns.
        templates: the usual step of each rank of the other run.
    """
    replay = window.replay
    if replay is None or window.refused or not set(templates) >= {own.rank for own in summary}:
        return None
    graph, kinds = replay.graph, list(KINDS_OF_WORK)
    other = {kind: graph.work.copy() for kind in kinds}
    by_rank: dict[str, dict[int, float]] = {kind: {} for kind in kinds}
    for column, own in enumerate(summary):
        wanted, had = _step_work(own, templates[own.rank])
        steps = max(len(set(own.calls.step) - {-1}), 1)
        for kind in ("host", "device"):
            factor = np.ones(window.plan.size)
            place = window.plan.shift[column] + np.arange(len(had[kind]))
            factor[place] = np.divide(wanted[kind], had[kind], out=np.ones_like(had[kind]), where=had[kind] > 0)
            edges = np.flatnonzero((graph.label == _LABELS[kind]) & (graph.owner == column))
            other[kind][edges] *= factor[graph.segment[edges]]
            by_rank[kind][own.rank] = float((had[kind] - wanted[kind]).sum()) / steps
        _set_transfers(window, column, wanted["transfer"], other["transfer"])
        by_rank["transfer"][own.rank] = float((had["transfer"] - wanted["transfer"]).sum()) / steps
    length: dict[frozenset[str], float] = {}
    for count in range(len(kinds) + 1):
        for chosen in combinations(kinds, count):
            work = graph.work.copy()
            for kind in chosen:
                edges = graph.label == _LABELS[kind]
                work[edges] = other[kind][edges]
            length[frozenset(chosen)] = period_ns(replay, replay.marks(work))
    everything = frozenset(kinds)
    return Explanation(length[frozenset()], length[everything], _shapley(kinds, length), by_rank)


def _step_work(own: RankWindow, template: Template) -> tuple[dict[str, F64], dict[str, F64]]:
    """Return the template's work at each of a rank's calls, and the rank's own. Calls outside of steps keep their
    own."""
    calls = own.calls
    had = {
        "host": np.array(calls.host_ns, np.float64),
        "device": np.array(calls.device_ns, np.float64),
        "transfer": np.array(calls.transfer_ns, np.float64),
    }
    wanted = {kind: values.copy() for kind, values in had.items()}
    keys, place = call_keys(own), np.array(calls.step)
    for number in np.unique(place[place >= 0]):
        of_step = np.flatnonzero(place == number)
        step = targets(template, [keys[i] for i in of_step.tolist()], {kind: had[kind][of_step] for kind in had})
        for kind, values in step.items():
            wanted[kind][of_step] = values
    return wanted, had


def _set_transfers(window: WindowResult, column: int, wanted: F64, work: F64) -> None:
    """Replace the transfer times on the edges of a rank's calls."""
    assert window.replay is not None
    graph, matched, rows = window.replay.graph, window.matched, window.plan.rows[column]
    members = matched.of(column)
    of_row = np.full(int(max(rows.max(initial=0), matched.row[members].max(initial=0))) + 1, -1.0)
    of_row[rows] = wanted
    of_call = np.full(len(matched), -1.0)
    of_call[matched.call[members]] = of_row[matched.row[members]]
    edges = np.flatnonzero((graph.label == Work.TRANSFER) & (graph.owner == column))
    target = of_call[graph.segment[edges]]
    work[edges] = np.where(target >= 0, target, work[edges])


def _shapley(kinds: Sequence[str], length: dict[frozenset[str], float]) -> dict[str, float]:
    count, found = len(kinds), {}
    for kind in kinds:
        others = [other for other in kinds if other != kind]
        value = 0.0
        for size in range(count):
            weight = factorial(size) * factorial(count - size - 1) / factorial(count)
            for chosen in combinations(others, size):
                before = frozenset(chosen)
                value += weight * (length[before] - length[before | {kind}])
        found[kind] = value
    return found
