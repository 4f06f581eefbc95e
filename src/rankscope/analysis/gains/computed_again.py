"""Activation checkpointing: kernels of the forward that the backward runs again, and what their time costs a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.work_gains import MOST_RANKS, less_device_work, mean_gain_ms, placed_kernels
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.windows.analyse import WindowResult

__all__ = ["again", "again_ms"]

NODE = "autograd::engine::evaluate_function"
"""Begin of the name of the event in which autograd runs a node of the backward."""
FORWARD = {
    f"aten::{name}"
    for name in (
        *("linear", "conv1d", "conv2d", "conv3d", "layer_norm", "rms_norm", "group_norm", "batch_norm", "embedding"),
        *("gelu", "silu", "relu", "dropout", "scaled_dot_product_attention"),
    )
}
"""Operators that no formula of a backward calls."""


def again_ms(windows: Sequence[WindowResult]) -> float:
    """Return what a step would gain without these kernels, ms; ``windows`` were replayed."""
    known = [(w, w.replay) for w in windows if w.replay is not None and len(w.views) <= MOST_RANKS]
    gained = ((r, r.gains(less_device_work(r, r.graph.work, _shares(w)))) for w, r in known)
    return max(mean_gain_ms(gained), 0.0)


def _shares(window: WindowResult) -> list[NDArray[np.float64] | None]:
    """Return for each rank the share of these kernels in the device work of each segment; None without any."""
    shares: list[NDArray[np.float64] | None] = []
    for column, view in enumerate(window.views):
        kernels, _, place, length, whole = placed_kernels(view, window, column)
        repeated = again(view, kernels)
        part = np.bincount(place[repeated], length[repeated], len(whole))
        shares.append(np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0) if repeated.any() else None)
    return shares


def again(view: RankView, kernels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of these kernels belong to a forward that runs within the backward.

    It runs within the node of the backward that first needs what was not kept, before that node's own work: from the
    begin of the node until its last operator of the forward.
    """
    events = view.trace.events
    nodes = np.flatnonzero(view.chain & view.named(lambda name: name.startswith(NODE)))
    forward = np.flatnonzero(view.chain & view.named(FORWARD.__contains__))
    found = np.zeros(len(kernels), np.bool_)
    launch = events.launch[kernels]
    for thread in np.unique(events.tid[nodes]).tolist():
        own = nodes[events.tid[nodes] == thread]
        own = own[np.lexsort((-events.end[own], events.start[own]))]
        last = np.maximum.accumulate(events.end[own])
        own = own[np.append(True, events.start[own][1:] >= last[:-1])]  # those that no other contains
        start, until = events.start[own], events.start[own].copy()
        rows = forward[events.tid[forward] == thread]
        inside = np.searchsorted(start, events.start[rows], side="right") - 1
        within = (inside >= 0) & (events.start[rows] < events.end[own][inside])
        np.maximum.at(until, inside[within], events.end[rows[within]])
        at = np.searchsorted(start, events.start[launch], side="right") - 1
        found |= (events.tid[launch] == thread) & (at >= 0) & (events.start[launch] < until[at])
    return found
