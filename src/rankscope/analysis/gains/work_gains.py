"""What a step would gain, by replay, if kernels of one kind took no time: an upper bound for any change of these
kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.operators.groups import MEMORY_BOUND, OPTIMIZER, PLAIN, SHARDING, priced_group
from rankscope.analysis.operators.work import operator_of_kernels
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.replay.graph import Work
from rankscope.analysis.replay.what_if import Replay
from rankscope.analysis.windows.analyse import ALONE, WindowResult

__all__ = [
    "MOST_RANKS",
    "group_shares",
    "less_device_work",
    "mean_gain_ms",
    "operator_shares",
    "placed_kernels",
    "priced",
    "without_group",
    "work_gains",
]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

ASKED = (MEMORY_BOUND, OPTIMIZER, SHARDING, PLAIN)
"""Kinds that a change can fuse, reduce or speed up; other products and attention are the purpose of the job."""
MOST_RANKS = 16
"""Each kind needs a replay of all ranks, event by event. In larger jobs the times of the kernels are reported, without
what overlaps them."""


def priced(windows: Sequence[WindowResult]) -> list[WindowResult]:
    """Return the windows whose replay tells what less work would gain. One of a lone rank does, too."""
    return [w for w in windows if w.replay is not None and w.refused in (None, ALONE) and len(w.views) <= MOST_RANKS]


def mean_gain_ms(gained: Iterable[tuple[Replay, F64]]) -> float:
    """Return the mean gain per step, ms, of windows: their replays, and by how much each step would be shorter, ns."""
    total = steps = 0.0
    for replay, gains in gained:
        total += float(gains.sum())
        steps += replay.steps
    return total / max(steps, 1.0) / 1e6


def work_gains(windows: Sequence[WindowResult]) -> dict[str, float]:
    """Return kind of work -> ms per step, over the windows that were replayed; empty if there are too many ranks."""
    gained: dict[str, float] = {}
    steps = 0
    for window in windows:
        replay = window.replay
        if replay is None or len(window.views) > MOST_RANKS or not all(view.device for view in window.views):
            continue
        steps += replay.steps
        shares = [group_shares(view, window, column) for column, view in enumerate(window.views)]
        for group in ASKED:
            work = less_device_work(replay, replay.graph.work, [known.get(group) for known in shares])
            gained[group] = gained.get(group, 0.0) + float(replay.gains(work).sum())
    return {group: max(ns, 0.0) / steps / 1e6 for group, ns in gained.items()} if steps else {}


def without_group(window: WindowResult, work: F64, group: str) -> F64:
    """Return the work per edge without kernels of one kind. Only for windows that were replayed."""
    assert window.replay is not None
    shares = [group_shares(v, window, c).get(group) if v.device else None for c, v in enumerate(window.views)]
    return less_device_work(window.replay, work, shares)


def less_device_work(replay: Replay, work: F64, shares: Sequence[F64 | None]) -> F64:
    """Return the work per edge without a share of each segment's device work; ``shares`` has one entry per rank."""
    graph, size = replay.graph, max((len(share) for share in shares if share is not None), default=1)
    kept = np.ones((len(shares), size))
    for own, share in zip(kept, shares, strict=True):
        if share is not None:
            own[:] = np.pad(1.0 - share, (0, size - len(share)), mode="edge")
    device_work = np.flatnonzero(graph.label == Work.DEVICE)
    changed: F64 = work.copy()
    changed[device_work] *= kept[graph.owner[device_work], np.minimum(graph.segment[device_work], size - 1)]
    return changed


def operator_shares(view: RankView, window: WindowResult, column: int, operator: str) -> F64:
    """Return the share of each segment's device work in kernels of one operator, or in kernels of that name."""
    found = group_shares(
        view, window, column, lambda o, kernel: operator if operator in (o, kernel) else "", (operator,)
    )
    return found.get(operator, np.zeros(window.plan.size))


def placed_kernels(view: RankView, window: WindowResult, column: int) -> tuple[I64, I64, I64, F64, F64]:
    """Return the kernels of the recorded steps whose launch is known: their rows, their operators (-1 if unknown), the
    segments that launch them and their lengths, ns; and the length of all in each segment."""
    events = view.trace.events
    kernels, operators = operator_of_kernels(view)
    launched = events.launch[kernels] >= 0
    kernels, operators = kernels[launched], operators[launched]
    place = window.plan.segment_of(column, events.start[events.launch[kernels]])
    length = events.duration[kernels].astype(np.float64)
    whole = np.bincount(place, length, window.plan.size).astype(np.float64)
    return kernels, operators, place, length, whole


def group_shares(
    view: RankView,
    window: WindowResult,
    column: int,
    kind: Callable[[str, str], str] = priced_group,
    asked: Sequence[str] = ASKED,
) -> dict[str, F64]:
    """Return kind of work -> its share of the device work of each segment."""
    events, strings = view.trace.events, view.trace.strings
    kernels, operators, place, length, whole = placed_kernels(view, window, column)
    size = len(whole)
    pairs = np.stack((events.name[kernels], np.where(operators >= 0, events.name[operators.clip(0)], -1)))
    kinds, which = np.unique(pairs, axis=1, return_inverse=True)
    groups = [kind(strings[o] if o >= 0 else "", strings[k]) for k, o in kinds.T.tolist()]
    found = {}
    for group in set(groups) & set(asked):
        of_group = np.array([g == group for g in groups])[which.reshape(-1)]
        part = np.bincount(place[of_group], length[of_group], size)
        found[group] = np.divide(part, whole, out=np.zeros(size), where=whole > 0)
    return found
