"""Matrix products with a size that is no multiple of 8, and so with rows that do not begin at multiples of 16 bytes.

Such a product is compared with aligned ones of the same trace and precision that have no more operations and no more
operations per byte: a larger product reaches at least their rate if it is aligned, too. So no data sheet is needed, and
products that are slow because they are small or bound by memory are not accused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.gains.faster import gain_ms, with_shorter_kernels
from rankscope.analysis.gains.work_gains import placed_kernels, priced
from rankscope.analysis.operators.flops import factors
from rankscope.analysis.operators.precision import precision_of
from rankscope.analysis.rank import intervals
from rankscope.analysis.rank.view import RankView
from rankscope.analysis.windows.analyse import WindowResult
from rankscope.records.changes import UnalignedProduct

__all__ = ["pad_products", "unaligned_product"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

ALIGNED = 8
"""Elements. 8 numbers of 16 bits are 16 bytes, the unit in which tensor cores are fed."""
HALF = ("bf16", "fp16")
"""Precisions of which 8 numbers are that unit. In tf32 it is 4 numbers, and kernels for fp8 need aligned sizes."""
LARGE = 64
"""A size is padded to a multiple of this if that adds no more than a hundredth, else to a multiple of 8."""


@dataclass
class _Product:
    """Calls of one operator with factors of one size and kernels of one precision, one kernel each."""

    operator: str
    left: tuple[int, ...]
    right: tuple[int, ...]
    precision: str
    rows: list[int] = field(default_factory=list)
    """Positions among the kernels of its rank."""
    lengths: list[int] = field(default_factory=list)
    """Of those beside no communication, ns."""

    @cached_property
    def ns(self) -> float:
        """Median of these lengths; 0 without any."""
        return float(np.median(self.lengths)) if self.lengths else 0.0

    @property
    def flop(self) -> int:
        return 2 * prod(self.left) * self.right[-1]

    @property
    def intensity(self) -> float:
        """Operations per element that is read or written."""
        result = prod(self.left[:-1]) * self.right[-1]
        return self.flop / (prod(self.left) + prod(self.right) + result)

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.left[-2], self.left[-1], self.right[-1]

    @property
    def padded(self) -> dict[int, int]:
        """Size -> aligned size, for those that are not."""
        return {size: _next(size) for size in self.sizes if size % ALIGNED}

    @property
    def more(self) -> float:
        """Operations after padding over those now."""
        return prod(self.padded.get(size, size) / size for size in self.sizes)

    @property
    def rate(self) -> float:
        """Operations per ns."""
        return self.flop / self.ns


def unaligned_product(windows: Sequence[WindowResult]) -> UnalignedProduct | None:
    """Return the product that loses most, with the gain of padding all; None if no aligned product shows a loss."""
    lost: dict[tuple[object, ...], tuple[float, _Product, float]] = {}
    for window in priced(windows):
        for column, view in enumerate(window.views):
            if not view.device:
                continue
            products = _products(view, *placed_kernels(view, window, column)[:2])
            for product in products:
                if rates := _reachable(product, products):
                    loss = len(product.rows) * (product.ns - product.flop * product.more / rates[1])
                    key = (product.operator, product.left, product.right)
                    lost[key] = (lost[key][0] + loss if key in lost else loss, product, rates[1])
    lost = {key: one for key, one in lost.items() if one[0] > 0}
    if not lost:
        return None
    _, worst, rate = max(lost.values(), key=lambda item: item[0])
    return UnalignedProduct(
        operator=worst.operator,
        sizes=f"{list(worst.left)} x {list(worst.right)}",
        pad=worst.padded,
        tflops=worst.rate / 1e3,
        aligned_tflops=rate / 1e3,
        low_ms=gain_ms(windows, lambda window, work: pad_products(window, work, best=False)),
        high_ms=gain_ms(windows, pad_products),
    )


def pad_products(window: WindowResult, work: F64, *, best: bool = True) -> F64:
    """Return the work per edge if these products were aligned: at the best rate of those they are compared with, or at
    the median rate."""
    assert window.replay is not None
    saved: list[tuple[I64, F64, F64] | None] = []
    for column, view in enumerate(window.views):
        if not view.device:
            saved.append(None)
            continue
        kernels, operators, place, length, whole = placed_kernels(view, window, column)
        products, less = _products(view, kernels, operators), np.zeros(len(kernels))
        for product in products:
            if rates := _reachable(product, products):
                rows = np.array(product.rows)
                less[rows] = np.maximum(length[rows] - product.flop * product.more / rates[best], 0.0)
        saved.append((place, less, whole))
    return with_shorter_kernels(window.replay, work, saved)


def _reachable(product: _Product, others: Sequence[_Product]) -> tuple[float, float] | None:
    """Return the median and the best rate of aligned products that are smaller and no denser; None if it is aligned
    itself, or if there are none."""
    if not product.padded or not product.ns:
        return None
    rates = [
        other.rate
        for other in others
        if other.ns
        and not other.padded
        and other.precision == product.precision
        and other.flop <= product.flop
        and other.intensity <= product.intensity
    ]
    return (float(np.median(rates)), max(rates)) if rates else None


def _products(view: RankView, kernels: I64, operators: I64) -> list[_Product]:
    """Return the products of one rank whose calls have one kernel and a known precision.

    Args:
        view: the rank.
        kernels: rows of its events.
        operators: the operator of each, -1 if unknown.
    """
    events, strings = view.trace.events, view.trace.strings
    _, of_call, count = np.unique(operators, return_inverse=True, return_counts=True)
    rows = np.flatnonzero((operators >= 0) & (count[of_call.reshape(-1)] == 1))
    beside = intervals.cover(view.comm, events.start[kernels[rows]], events.end[kernels[rows]]) > 0
    codes = np.stack((events.name[operators[rows]], events.shape[operators[rows]], events.name[kernels[rows]]))
    kinds, which = np.unique(codes, axis=1, return_inverse=True)
    found: dict[tuple[str, str, str], _Product] = {}
    for number, (operator, shape, kernel) in enumerate(kinds.T.tolist()):
        sizes = factors(strings[operator], strings[shape]) if shape >= 0 else None
        precision = precision_of(strings[kernel])
        if sizes is None or precision not in HALF or min(sizes[0] + sizes[1]) < 1:
            continue
        key = strings[operator], strings[shape], precision
        product = found.setdefault(key, _Product(key[0], tuple(sizes[0]), tuple(sizes[1]), precision))
        mine = which.reshape(-1) == number
        product.rows.extend(rows[mine].tolist())
        product.lengths.extend(events.duration[kernels[rows[mine & ~beside]]].tolist())
    return list(found.values())


def _next(size: int) -> int:
    large = -(-size // LARGE) * LARGE
    return large if large <= 1.01 * size else -(-size // ALIGNED) * ALIGNED
