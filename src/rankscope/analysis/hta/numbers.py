"""Rows of HTA's tables: descriptions of a series, and sums by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.trace.columns import RankTrace

__all__ = ["MOST_NAMES", "Record", "described", "sums_by_name"]

MOST_NAMES = 8
"""Number of names that are listed; the others are summed."""
_TOP_RATIO = 0.8

Record = dict[str, Any]


def described(values: NDArray[np.floating[Any]]) -> Record:
    """Return the values of pandas' ``describe``."""
    quarter, half, three = np.quantile(values, (0.25, 0.5, 0.75))
    return {
        "count": len(values),
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else None,
        "min": float(values.min()),
        "25%": float(quarter),
        "50%": float(half),
        "75%": float(three),
        "max": float(values.max()),
    }


def sums_by_name(trace: RankTrace, rows: NDArray[np.int64], most: int = MOST_NAMES) -> list[Record]:
    """Return the time of some events by name, µs, the longest first.

    Beyond ``most`` names, those after the 80 % quantile of the running sum are ``others`` too, as in HTA.
    """
    names, duration = trace.events.name[rows], trace.events.duration[rows] / 1000
    known, place = np.unique(names, return_inverse=True)
    sums = np.bincount(place, duration, len(known))
    order = np.argsort(-sums, kind="stable")
    kept = np.zeros(len(known), bool)
    kept[order[:most]] = True
    if len(known) > most:
        total = np.cumsum(sums[order])
        kept[order[total > np.quantile(total, _TOP_RATIO)]] = False
    times = {trace.strings[known[i]]: duration[place == i] for i in order.tolist() if kept[i]}
    if not kept.all():
        times["others"] = duration[~kept[place]]
    return [
        {
            "name": name,
            "sum (us)": float(own.sum()),
            "max (us)": float(own.max()),
            "min (us)": float(own.min()),
            "stddev": float(own.std(ddof=1)) if len(own) > 1 else 0.0,
            "mean (us)": float(own.mean()),
        }
        for name, own in times.items()
    ]
