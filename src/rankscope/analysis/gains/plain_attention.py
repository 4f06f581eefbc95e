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
SLOW = 0.25
"""Share of the device's peak that fused kernels reach in a backward of short sequences, without a causal mask."""
MOVES = ("aten::copy_", "aten::cat")


@dataclass(frozen=True, slots=True)
class _Parts:
    """Kernels of such attention among those of a rank: masks of shape (kernels,)."""

    core: NDArray[np.bool_]
    """Softmax and products."""
    beside: NDArray[np.bool_]
    """Other kernels on scores: masks, scaling, dropout."""
    moves: NDArray[np.bool_]
    """Copies of queries, keys and values, or of their gradients, for these products."""
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
    """Return the work per edge with a fused kernel in place of these. In the best case it takes no time, and needs no
    copies; in the worst it makes all products at the lowest rate, or, where the peak is unknown, at the present one."""
    assert window.replay is not None
    saved: list[tuple[I64, F64, F64] | None] = []
    for column, view in enumerate(window.views):
        if not view.device:
            saved.append(None)
            continue
        _, operators, place, length, whole = placed_kernels(view, window, column)
        parts = _parts(view, operators)
        peak = peak_of(view.trace.meta.device)
        gone = parts.core | parts.beside
        needed = np.zeros(len(length))
        if best:
            gone |= parts.moves
        elif peak is not None:
            needed = parts.flop * AGAIN / (SLOW * peak.tflops * 1e3)  # operations per ns
        else:
            needed = np.where(parts.flop > 0, length, 0.0)
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
    sizes = {
        side for operator, shapes in products if _roles(shapes, operator, scores) for side in _sides(shapes, operator)
    }
    core, beside, moves, work = (np.zeros(len(named)) for _ in range(4))
    for number, (operator, shapes) in enumerate(named):
        size = _scores(shapes)
        if operator in SOFTMAX:
            core[number] = size in scores
        elif operator in PRODUCTS:
            core[number] = bool(_roles(shapes, operator, scores))
            work[number] = (flop(operator, shapes) or 0) * core[number]
        else:
            beside[number] = size in scores
            moves[number] = operator in MOVES and size in sizes
    return _Parts(core[which] > 0, beside[which] > 0, moves[which] > 0, work[which])


def _scores(shapes: str) -> tuple[int, int, int] | None:
    """Return the sizes of the first input as batch times heads, rows and columns if it can be attention's scores.

    It has the dimensions batch, head, position, position, or the first two as one. So may have a softmax over experts,
    which is no result and factor of batched products.
    """
    try:
        first = json.loads(shapes)[0]
        sizes = [int(size) for size in (first[0] if isinstance(first[0], list) else first)]  # of a list of tensors
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


def _sides(shapes: str, operator: str) -> list[tuple[int, int, int]]:
    """Return the sizes of both factors of a batched product and of its result."""
    sizes = factors(operator, shapes)
    if sizes is None:
        return []
    (batch, rows, middle), (_, _, columns) = sizes
    return [(batch, rows, middle), (batch, middle, columns), (batch, rows, columns)]
