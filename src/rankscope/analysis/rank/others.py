"""Medians over all others, for many ranks at once: one sort does for all of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["median_of_known_others", "median_of_others"]

F64 = NDArray[np.float64]


def median_of_others(table: F64) -> F64:
    """For each entry the median of the others of its row; rows have at least two."""
    size = table.shape[1]
    order = np.argsort(table, axis=1, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(size), order.shape), axis=1)
    ordered = np.take_along_axis(table, order, axis=1)
    # the middle of the size - 1 others: their places without one's own
    low, high = (size - 2) // 2, (size - 1) // 2
    middle = [np.take_along_axis(ordered, n + (place <= n), axis=1) for n in (low, high)]
    return np.asarray((middle[0] + middle[1]) / 2.0)


def median_of_known_others(table: F64) -> F64:
    """For each entry the median of the other numbers of its row; NaN for no number, and where there is no other."""
    found = np.full(table.shape, np.nan)
    known = ~np.isnan(table)
    whole = known.all(axis=1)
    if table.shape[1] > 1:
        found[whole] = median_of_others(table[whole])
    for row in np.flatnonzero(~whole).tolist():
        some = known[row]
        if some.sum() > 1:
            found[row, some] = median_of_others(table[row, some][None])[0]
    return found
