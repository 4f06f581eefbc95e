"""Steps with shorter kernels or transfers: the work per edge after such a change, and the gain over all windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.work_gains import less_device_work, mean_gain_ms, priced
from rankscope.analysis.replay.what_if import Replay
from rankscope.analysis.windows.analyse import WindowResult

__all__ = [
    "Saved",
    "gain_ms",
    "mean_of_windows",
    "shorter_by",
    "with_faster_calls",
    "with_shorter_kernels",
    "without_calls",
]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

Shorter = tuple[I64, F64, F64]
"""Segment of each of some kernels, by how much it would be shorter (ns), and the length of all kernels of each segment
(ns)."""
Saved = Sequence[Shorter | None]
"""Per rank; None for a rank without such kernels."""


def with_shorter_kernels(replay: Replay, work: F64, saved: Saved) -> F64:
    """Return the work per edge if kernels were shorter. A kernel that becomes longer counts with a negative number."""
    return less_device_work(replay, work, [None if part is None else shorter_by(part) for part in saved])


def shorter_by(kernels: Shorter) -> F64:
    """Return the share of each segment's kernels that they would be shorter by."""
    place, less, whole = kernels
    total = np.bincount(place, less, len(whole))
    return np.divide(total, whole, out=np.zeros(len(whole)), where=whole > 0).clip(max=1.0)


def with_faster_calls(window: WindowResult, work: F64, factor: F64) -> F64:
    """Return the work per edge with the transfer of each matched call times a factor, shape (calls,)."""
    assert window.replay is not None
    edges, member = window.replay.graph.transfers()
    known = member >= 0
    changed: F64 = work.copy()
    changed[edges[known]] *= factor[window.matched.call[member[known]]]
    return changed


def without_calls(window: WindowResult, work: F64, calls: NDArray[np.bool_]) -> F64:
    """Return the work per edge if the transfers of these matched calls, shape (calls,), took no time."""
    return with_faster_calls(window, work, (~calls).astype(np.float64))


def gain_ms(windows: Sequence[WindowResult], change: Callable[[WindowResult, F64], F64]) -> float:
    """Return what a step would gain by a change of the work per edge, ms, at least 0; over the windows that can be
    replayed."""
    replays = [(w, w.replay) for w in priced(windows) if w.replay is not None]
    return max(mean_gain_ms((r, r.gains(change(w, r.graph.work))) for w, r in replays), 0.0)


def mean_of_windows(windows: Sequence[WindowResult], value: Callable[[WindowResult], float]) -> float:
    """Return the mean over ranks and steps of a sum over ranks."""
    known = priced(windows)
    total = sum(value(window) for window in known)
    return total / max(sum(view.steps for window in known for view in window.views), 1)
