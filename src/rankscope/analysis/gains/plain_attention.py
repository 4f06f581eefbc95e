"""Attention in separate kernels: products and a softmax whose scores, one for each pair of positions, are written to
memory. A fused kernel keeps them on the chip."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.faster import gain_ms, mean_of_windows, with_shorter_kernels
from rankscope.analysis.gains.work_gains import placed_kernels, priced
from rankscope.analysis.operators.device_peaks import peak_of
from rankscope.analysis.operators.flops import factors, flop
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.changes import PlainAttention

__all__ = ["fused", "plain_attention"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data")
PRODUCTS = ("aten::bmm", "aten::baddbmm")
FALLBACK = "aten::_scaled_dot_product_attention_math"
AGAIN = 7 / 6
"""Products of a fused kernel over those of the separate ones: two in the forward and four in the backward, which
computes the scores once more."""
SLOW, FAST = 0.25, 0.7
"""Shares of the device's peak that fused kernels reach, in a backward of short sequences and a forward of long ones.
With a causal mask they also leave out half of the products."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """Kernels of such attention among those of a rank: masks of shape (kernels,)."""

    core: NDArray[np.bool_]
    """Softmax and products."""
    beside: NDArray[np.bool_]
    """Other kernels on scores: masks, scaling, dropout."""
    flop: F64
    """Operations of each product's kernel, in 16 bits or 32 bits alike; 0 for other kernels."""


def plain_attention(windows: Sequence[WindowResult]) -> PlainAttention | None:
    """Return what such attention takes, and what a fused kernel would gain; None without any, or without shapes."""
    kernels = mean_of_windows(windows, lambda window: float(sum(_mine(window, v, c).sum() for v, c in _ranks(window))))
    if not kernels:
        return None

    def ns(window: WindowResult) -> float:
        return float(sum(v.trace.events.duration[_kernels(window, v, c)].sum() for v, c in _ranks(window)))

    names = {name for window in priced(windows) for view in window.views for name in view.trace.strings}
    return PlainAttention(
        kernels=kernels,
        ms=mean_of_windows(windows, ns) / 1e6,
        fallback=FALLBACK in names,
        low_ms=gain_ms(windows, lambda window, work: fused(window, work, best=False)),
        high_ms=gain_ms(windows, fused),
    )


def fused(window: WindowResult, work: F64, *, best: bool = True) -> F64:
    """Return the work per edge with a fused kernel in place of these. The best case is a causal mask at the highest
    rate, and nothing left of masks and scaling. The worst is a full mask at the lowest rate; where the peak is unknown,
    products are then as slow as now."""
    assert window.replay is not None
    saved: list[tuple[I64, F64, F64] | None] = []
    for column, view in enumerate(window.views):
        if not view.device:
            saved.append(None)
            continue
        _, operators, place, length, whole = placed_kernels(view, window, column)
        parts = _parts(view, operators)
        peak = peak_of(view.trace.meta.device)
        rate = peak.tflops * 1e3 * (FAST if best else SLOW) if peak is not None else np.inf  # operations per ns
        needed = parts.flop * AGAIN * (0.5 if best else 1.0) / rate
        if peak is None and not best:
            needed = np.where(parts.flop > 0, length, 0.0)
        gone = parts.core | parts.beside if best else parts.core
        saved.append((place, np.where(gone, length - needed, 0.0), whole))
    return with_shorter_kernels(window.replay, work, saved)


def _ranks(window: WindowResult) -> list[tuple[RankView, int]]:
    return [(view, column) for column, view in enumerate(window.views) if view.device]


def _mine(window: WindowResult, view: RankView, column: int) -> NDArray[np.bool_]:
    parts = _parts(view, placed_kernels(view, window, column)[1])
    return parts.core | parts.beside


def _kernels(window: WindowResult, view: RankView, column: int) -> I64:
    kernels, *_ = placed_kernels(view, window, column)
    return kernels[_mine(window, view, column)]


def _parts(view: RankView, operators: I64) -> _Parts:
    events, strings = view.trace.events, view.trace.strings
    row = operators.clip(0)
    pairs = np.stack((np.where(operators >= 0, events.name[row], -1), np.where(operators >= 0, events.shape[row], -1)))
    kinds, which = np.unique(pairs, axis=1, return_inverse=True)
    which = which.reshape(-1)
    named = [(strings[o] if o >= 0 else "", strings[s] if s >= 0 else "") for o, s in kinds.T.tolist()]
    asked = {shape for operator, shapes in named if operator in SOFTMAX and (shape := _scores(shapes)) is not None}
    products = [pair for pair in named if pair[0] in PRODUCTS]
    scores = {
        shape
        for shape in asked
        if len(set().union(*(_roles(shapes, operator, {shape}) for operator, shapes in products))) > 1
    }
    core, beside, work = (np.zeros(len(named)) for _ in range(3))
    for number, (operator, shapes) in enumerate(named):
        if operator in SOFTMAX:
            core[number] = _scores(shapes) in scores
        elif operator in PRODUCTS:
            core[number] = bool(_roles(shapes, operator, scores))
            work[number] = (flop(operator, shapes) or 0) * core[number]
        else:
            beside[number] = _scores(shapes) in scores
    return _Parts(core[which] > 0, beside[which] > 0, work[which] if len(which) else np.zeros(0))


def _scores(shapes: str) -> tuple[int, int, int] | None:
    """Return batch times heads, and both lengths, of the first input if it can be attention's scores; else None.

    It has the dimensions batch, head, position, position, or the first two as one. So may have a softmax over experts,
    which is no result and factor of batched products.
    """
    try:
        sizes = [int(size) for size in json.loads(shapes)[0]]
    except (ValueError, TypeError, IndexError):
        return None
    if len(sizes) not in (3, 4) or min(sizes, default=0) < 1 or sizes[-1] < 2:
        return None
    return (sizes[0] * sizes[1] if len(sizes) == 4 else sizes[0]), sizes[-2], sizes[-1]


def _roles(shapes: str, operator: str, scores: set[tuple[int, int, int]]) -> set[str]:
    """Return whether a product has one of these scores, transposed or not, as ``factor`` or as ``result``."""
    sizes = factors(operator, shapes)
    if sizes is None or len(sizes[0]) != 3:
        return set()
    (batch, *left), (_, *right) = sizes
    sides = {side for heads, q, k in scores if heads == batch for side in ((q, k), (k, q))}
    found = {"factor"} if {tuple(left), tuple(right)} & sides else set()
    return found | ({"result"} if (left[0], right[1]) in sides else set())
